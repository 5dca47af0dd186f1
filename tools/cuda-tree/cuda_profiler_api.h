#pragma once
inline int cudaProfilerStart() { return 0; }
inline int cudaProfilerStop() { return 0; }
