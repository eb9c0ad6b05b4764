"""Ray Serve's side of a fleet: the only module that knows Ray.

Ray starts and replaces replicas, autoscales, rolls out new configurations and drains; its HAProxy
ingress balances. Requests with one voice go to one replica, by consistent hashing with bounded
load, so that a voice's prompt is computed where it was computed before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightingale.fleet.config import FleetConfig, missing
from nightingale.fleet.scaling import wanted_replicas

try:
    import ray
    from ray import serve
    from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
except ModuleNotFoundError as error:
    raise missing(error) from error

APP, DEPLOYMENT = "nightingale", "Speech"


class Speech:
    """A replica, as Ray calls it."""

    async def __init__(self, args: Mapping[str, Any]) -> None:  # type: ignore[misc]  # Ray awaits it
        from nightingale.fleet.replica import Replica  # noqa: PLC0415 - of the server's packages

        self._replica = Replica(FleetConfig.of(args))
        self._app = await self._replica.start(serve.get_replica_context().replica_id.unique_id)

    def __serve_build_asgi_app__(self) -> Any:
        return self._app

    async def check_health(self) -> None:
        self._replica.check()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return self._replica.load()

    async def __del__(self) -> None:
        await self._replica.stop()


class StreamsPolicy:
    """Autoscaling on live streams and playback slack."""

    def __init__(self, per_replica: float, min_slack_s: float) -> None:
        self._per_replica, self._min_slack_s = per_replica, min_slack_s

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        known = context.aggregated_metrics or {}
        n_wanted = wanted_replicas(
            known.get("streams", {}).values(), known.get("slack_s", {}).values(),
            context.current_num_replicas,
            per_replica=self._per_replica, min_slack_s=self._min_slack_s,
        )  # fmt: skip
        return n_wanted, {}


def application(args: Mapping[str, Any]) -> Any:
    """What `import_path` in a file of Ray Serve names."""
    config = FleetConfig.of(args)
    policy = {"per_replica": config.streams_per_replica, "min_slack_s": config.min_slack_s}
    scaling = AutoscalingConfig(
        min_replicas=config.min_replicas,
        max_replicas=config.max_replicas,
        upscale_delay_s=config.upscale_delay_s,
        downscale_delay_s=config.downscale_delay_s,
        policy=AutoscalingPolicy(
            policy_function="nightingale.fleet.app:StreamsPolicy", policy_kwargs=policy
        ),
    )
    is_fixed = config.min_replicas == config.max_replicas
    how_many = {"num_replicas": config.max_replicas} if is_fixed else {}
    deployment = serve.deployment(
        serve.ingress()(Speech),
        name=DEPLOYMENT,
        max_ongoing_requests=config.max_ongoing,
        max_queued_requests=config.max_queued,
        graceful_shutdown_timeout_s=config.drain_s + 5,
        health_check_period_s=2,
        ray_actor_options={"num_cpus": config.cpus, "num_gpus": config.gpus},
        **(how_many or {"autoscaling_config": scaling}),
    )
    return deployment.bind(dict(args))


def up(given: Mapping[str, Any], args: Mapping[str, Any]) -> None:
    """Start Ray on this machine, or join the cluster that RAY_ADDRESS names, and deploy."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    serve.start(
        proxy_location=given.get("proxy_location", "EveryNode"),
        http_options=dict(given.get("http_options") or {}),
    )
    roll(args)


def roll(args: Mapping[str, Any]) -> None:
    """Deploy these settings; replicas are replaced one after the other, and old ones drain."""
    serve.run(application(args), name=APP, route_prefix="/")


def n_running() -> int:
    """Replicas that answer."""
    app = serve.status().applications.get(APP)
    states = app.deployments[DEPLOYMENT].replica_states if app else {}
    return int(states.get("RUNNING", 0))


def down() -> None:
    serve.shutdown()
    ray.shutdown()
