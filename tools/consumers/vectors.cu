// A program of two kernels, with a function that is called, shared memory and a loop.
#include <cstdio>

__device__ __noinline__ float polynomial(float x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum = sum * x + i;
    return sum;
}

__global__ void evaluate(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = polynomial(x[i], 5);
}

__global__ void reverse(int *values) {
    __shared__ int block[256];
    block[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}

int main() {
    std::puts("built");
    return 0;
}
