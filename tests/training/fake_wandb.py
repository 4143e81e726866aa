from types import SimpleNamespace


class FakeRun:
    """A replacement of `wandb.Run` that keeps its calls, and fails from the `fail_from`-th call to `log` on."""

    def __init__(self, options, fail_from=None):
        self.options = options
        self.id = options["id"]
        self.settings = SimpleNamespace(sync_dir=f"{options['dir']}/wandb/offline-run-1-{self.id}")
        self.fail_from = fail_from
        self.logged = []
        self.summary = {}
        self.exit_code = None

    def define_metric(self, *args, **kwargs):
        pass

    def log(self, values):
        if self.fail_from is not None and len(self.logged) >= self.fail_from:
            raise ConnectionError("the service is gone")
        self.logged.append(values)

    def finish(self, exit_code):
        self.exit_code = exit_code
