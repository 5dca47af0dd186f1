// c = a + b over a matrix with a row pitch, on a 2-D grid.
extern "C" __global__ void vecadd2d(const float* a, const float* b, float* c, int width, int height, int pitch) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    int i = y * pitch + x;
    c[i] = a[i] + b[i];
  }
}
