// What older programs call on the host and CUDA 13 has no more, or with other parameters: nothing here is executed.
#include <cuda_runtime.h>
#define cudaMemPrefetchAsync(...) cudaSuccess
#define cudaMemAdvise(...) cudaSuccess
#define cudaGraphAddDependencies(...) cudaSuccess
#define cudaThreadSynchronize cudaDeviceSynchronize
#define cudaThreadExit cudaDeviceReset
#define cudaThreadGetLastError cudaGetLastError
