// Iterations until escape, several samples a pixel: nested loops with breaks.
extern "C" __global__ void mandelbrot(int* out, int width, int height, int limit) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= width || py >= height) return;
  int total = 0;
  for (int s = 0; s < 4; s++) {
    float cx = __fmaf_rn((float)(2 * px + (s & 1)), 0.046875f, -2.25f);
    float cy = __fmaf_rn((float)(2 * py + (s >> 1)), 0.0625f, -1.0f);
    float x = 0, y = 0;
    int k = 0;
    for (;;) {
      float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
      if (__fadd_rn(xx, yy) > 4.0f) break;
      if (++k >= limit) break;
      y = __fmaf_rn(__fadd_rn(x, x), y, cy);
      x = __fadd_rn(__fadd_rn(xx, -yy), cx);
    }
    total += k;
    if (k == limit) break;
  }
  out[py * width + px] = total;
}
