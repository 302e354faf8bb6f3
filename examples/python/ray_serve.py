"""A deployment of Ray Serve that responds to conversations: python ray_serve.py MODEL"""

import sys

import ray
import siskin.ray
from ray import serve

ray.init(num_cpus=2, include_dashboard=False)
application = serve.deployment(siskin.ray.ChatDeployment).bind(sys.argv[1], threads=1)
handle = serve.run(application, route_prefix=None)
question = [{"role": "user", "content": "Name a bird."}]
message = handle.chat.remote(question, max_tokens=24, temperature=0.0).result()
print(message)
pieces = handle.options(stream=True).stream.remote(question, max_tokens=24, temperature=0.0)
assert "".join(pieces) == message["content"]
serve.shutdown()
