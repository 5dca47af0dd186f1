// Collatz lengths in 64 bits, and division by variables and constants of both signs and widths.
extern "C" __global__ void collatz(const unsigned long long* start, int* length, long long* mixed, int n, int d, long long d64) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long x = start[i];
  int steps = 0;
  while (x != 1 && steps < 200) {
    x = (x & 1) ? 3 * x + 1 : x / 2;
    steps++;
  }
  length[i] = steps;
  long long v = (long long)(start[i] * 0x9e3779b97f4a7c15ull);
  int w = (int)v;
  unsigned u = (unsigned)v;
  long long r = v / d64 + v % d64 * 3;
  r ^= (long long)(w / d) + (long long)(w % d) * 5;
  r ^= (long long)(u / (unsigned)d) * 7 + (u % (unsigned)d);
  r += (unsigned long long)v / (unsigned long long)d64 - (unsigned long long)v % (unsigned long long)d64;
  r += w / 7 + w % 10 + u / 641u + u % 1000003u;
  r += v / 1000000007ll + v % 97;
  mixed[i] = r;
}
