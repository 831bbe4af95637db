"""What a run looked like: its episodes as arrays, its numbers, its picture."""
