"""What the tests share: envs that misbehave on demand, signals between processes, a maker of managers."""
