// One step of an n-body simulation: accelerations by rsqrt, positions staged in shared memory.
extern "C" __global__ void nbody(const float4* position, float4* acceleration, int n, float softening) {
  __shared__ float4 tile[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  float4 me = position[i];
  float ax = 0, ay = 0, az = 0;
  for (int base = 0; base < n; base += 64) {
    tile[threadIdx.x] = position[base + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; j++) {
      float4 o = tile[j];
      float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
      float s = o.w * r * r * r;
      ax += dx * s;
      ay += dy * s;
      az += dz * s;
    }
    __syncthreads();
  }
  acceleration[i] = make_float4(ax, ay, az, 0);
}
