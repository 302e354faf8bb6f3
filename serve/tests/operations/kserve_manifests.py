"""Reads the manifests for KServe and KEDA with KServe's package, and runs what the runtime runs.

    python kserve_manifests.py SISKIN SMOLLM2

No cluster is needed, and none has run the manifests. A field that KServe or Kubernetes does not know fails.
"""

import json
import pathlib
import re
import sys
import tempfile

import kserve
import kubernetes.client
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "clients"))
from siskin_server import Server

SISKIN, DECODER = sys.argv[1:3]
DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
# Of KEDA, which has no Python package: the fields of a `ScaledObject`, and of a trigger by Prometheus.
SCALED_OBJECT = {
    "scaleTargetRef", "minReplicaCount", "maxReplicaCount", "cooldownPeriod", "triggers", "pollingInterval",
    "initialCooldownPeriod", "idleReplicaCount", "fallback", "advanced",
}
PROMETHEUS = {
    "serverAddress", "query", "threshold", "activationThreshold", "namespace", "customHeaders", "ignoreNullValues",
    "queryParameters", "unsafeSsl", "timeout", "authModes",
}
SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def model_of(name):
    """Returns the class of KServe's or Kubernetes' package with this name, if there is one."""
    return getattr(kserve, name, None) or getattr(kubernetes.client, name, None)


def parse(value, kind, where):
    """Returns a value as an object of the type, as the packages name it; fails if it is not one, or has unknown fields."""
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        assert isinstance(value, list), (where, value)
        return [parse(item, found[1], f"{where}[{index}]") for index, item in enumerate(value)]
    if found := re.fullmatch(r"[Dd]ict(?:\(|\[)str, (.*)(?:\)|\])", kind):
        assert isinstance(value, dict), (where, value)
        return {name: parse(item, found[1], f"{where}.{name}") for name, item in value.items()}
    if model := model_of(kind):
        assert isinstance(value, dict), (where, value)
        names = {public: name for name, public in model.attribute_map.items()}
        for name in value:
            assert name in names, f"{where}: {kind} has no field `{name}`"
        fields = {names[name]: item for name, item in value.items()}
        # It fails if a required field is missing.
        return model(**{name: parse(item, model.openapi_types[name], f"{where}.{name}") for name, item in fields.items()})
    if kind == "ResourceQuantity":
        assert re.fullmatch(r"\d+(m|[KMGT]i?)?", str(value)), (where, value)
    # The other types are such as a port that is a number or a name.
    assert isinstance(value, SIMPLE.get(kind, (str, int))), (where, kind, value)
    return value


def read(name, kind):
    """Returns a manifest as an object of its package."""
    return parse(yaml.safe_load((DEPLOY / "kserve" / name).read_text()), kind, name)


def check_manifests():
    runtime = read("serving-runtime.yaml", "V1alpha1ServingRuntime")
    assert (runtime.api_version, runtime.kind) == ("serving.kserve.io/v1alpha1", "ServingRuntime")
    formats = [found.name for found in runtime.spec.supported_model_formats]
    service = read("inference-service.yaml", "V1beta1InferenceService")
    assert (service.api_version, service.kind) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = service.spec.predictor.model
    assert model.runtime == runtime.metadata.name and model.model_format.name in formats, model
    print("the runtime and the service for KServe have only fields that it knows, and fit together")

    scaler = yaml.safe_load((DEPLOY / "kserve/keda.yaml").read_text())
    assert (scaler["apiVersion"], scaler["kind"]) == ("keda.sh/v1alpha1", "ScaledObject"), scaler
    spec = scaler["spec"]
    assert set(spec) <= SCALED_OBJECT, set(spec) - SCALED_OBJECT
    for trigger in spec["triggers"]:
        assert trigger["type"] == "prometheus" and set(trigger["metadata"]) <= PROMETHEUS, trigger
        assert all(isinstance(value, str) for value in trigger["metadata"].values()), trigger
    predictor = service.spec.predictor
    assert spec["scaleTargetRef"] == {"name": f"{service.metadata.name}-predictor"}, spec
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (predictor.min_replicas, predictor.max_replicas)
    print("the scaler for KEDA has only fields that it knows, and scales the service")
    return runtime, spec["triggers"]


def check_runtime(runtime, triggers):
    """The server has the model, the probes and the metric of the manifests."""
    (container,) = runtime.spec.containers
    *options, path = container.args
    with tempfile.TemporaryDirectory() as folder:
        # The container has a file of the other format.
        model = pathlib.Path(folder) / (pathlib.PurePath(path).stem + pathlib.Path(DECODER).suffix)
        model.symlink_to(pathlib.Path(DECODER).resolve())
        server = Server(SISKIN, *options, str(model))
        try:
            for probe in [container.readiness_probe, container.liveness_probe]:
                assert probe.http_get.port == container.ports[0].container_port, probe
                assert json.loads(server.get(probe.http_get.path)) == {"status": "ok"}, probe
            metrics = server.get(runtime.spec.annotations["prometheus.kserve.io/path"])
            for trigger in triggers:
                for series in re.findall(r"siskin_\w+\{[^}]*\}", trigger["metadata"]["query"]):
                    # Besides the labels of the query, the server's series have others.
                    assert "\n" + series.removesuffix("}") in metrics, series
            server.stop()
        finally:
            server.process.kill()
    print("the server with the runtime's arguments answers its probes, and has the scaler's metric")


def main():
    check_runtime(*check_manifests())
    print("the manifests for KServe are valid")


main()
