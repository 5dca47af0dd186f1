#!/usr/bin/env bash
# JAX, whose XLA compiles for a GPU that is not there and calls ptxas, with oxptxas in its place: tools/consumers/jax.sh [WORK]. PYTHON has
# jax, jax-cuda13-plugin and jax-cuda13-pjrt (pip install).
. "$(dirname "$0")/common.sh"
toolkit
cat >"$work/program.py" <<'PY'
import pathlib
import sys

import jax
import jax.numpy as jnp
import jax_plugins.xla_cuda13 as plugin
from jax._src import xla_bridge
from jax.experimental import topologies

# Without a GPU and CUDA's libraries the plugin does not register itself.
xla_bridge.register_plugin("cuda", library_path=str(pathlib.Path(plugin.__file__).with_name("xla_cuda_plugin.so")))

sys.path.insert(0, sys.argv[1])
import target

devices = topologies.get_topology_desc(
    platform="cuda", target_config=target.CONFIG, topology="1x1x1"
).devices
sharding = jax.sharding.SingleDeviceSharding(devices[0])


def program(x, y):
    return jnp.sum(jnp.exp(x) * y, axis=1), jax.nn.softmax(x + y)


shape = jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=sharding)
jax.jit(program).trace(shape, shape).lower().compile()
PY
cat >"$work/target.py" <<'PY'
# What XLA has to know of a GPU, as text of its message GpuTargetConfigProto: an H100 by its public numbers.
CONFIG = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84979810304 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 1 } device_description_str: "NVIDIA H100 80GB HBM3"
runtime_version { major: 13 }
"""
PY
XLA_FLAGS="--xla_gpu_cuda_data_dir=$work/cuda --xla_gpu_enable_libnvptxcompiler=false --xla_gpu_autotune_level=0 ${XLA_FLAGS:-}" \
    "${PYTHON:-python3}" "$work/program.py" "$work"
verify_kept 1
