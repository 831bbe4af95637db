"""``check_env``: does an env keep its word? What ``envmgr check`` does, for a test of one's own.

    def test_my_env():
        report = check_env(MyEnv)
        assert report.ok, str(report)

The env is built in a worker process; what it does there is found, not raised.
"""

from envmgr.cli.checking.finding import Finding, Level
from envmgr.cli.checking.report import Report
from envmgr.cli.checking.run import check_env

__all__ = ["Finding", "Level", "Report", "check_env"]
