// What onnxruntime's CUDA provider asks of CUDA, cuBLAS and cuDNN until a session is made: one device, of compute
// capability 9.0, on which nothing ever runs. Memory is the host's. All other functions return 0, for success.
#include <stdlib.h>
#include <string.h>

static int token;
static const size_t memory = (size_t)64 << 30;

#define HANDLE(name) int name(void **out) { *out = &token; return 0; }
#define NUMBER(name, value) int name(int *out) { *out = value; return 0; }

NUMBER(cudaGetDeviceCount, 1)
NUMBER(cudaGetDevice, 0)
NUMBER(cudaRuntimeGetVersion, 13000)
NUMBER(cudaDriverGetVersion, 13000)
HANDLE(cudaStreamCreate)
HANDLE(cudaStreamCreateWithFlags)
HANDLE(cudaEventCreate)
HANDLE(cudaEventCreateWithFlags)
HANDLE(cudaMemPoolCreate)
HANDLE(cublasCreate_v2)
HANDLE(cublasLtCreate)
HANDLE(cudnnCreate)
HANDLE(cudnnCreateActivationDescriptor)
HANDLE(cudnnCreateConvolutionDescriptor)
HANDLE(cudnnCreateDropoutDescriptor)
HANDLE(cudnnCreateFilterDescriptor)
HANDLE(cudnnCreateRNNDataDescriptor)
HANDLE(cudnnCreateRNNDescriptor)
HANDLE(cudnnCreateReduceTensorDescriptor)
HANDLE(cudnnCreateTensorDescriptor)

int cudaMalloc(void **out, size_t size) { *out = malloc(size ? size : 1); return 0; }
int cudaMallocHost(void **out, size_t size) { return cudaMalloc(out, size); }
int cudaHostAlloc(void **out, size_t size, unsigned flags) { return cudaMalloc(out, size); }
int cudaFree(void *at) { free(at); return 0; }
int cudaFreeHost(void *at) { free(at); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) { memcpy(to, from, size); return 0; }
int cudaMemset(void *at, int value, size_t size) { memset(at, value, size); return 0; }
int cudaMemsetAsync(void *at, int value, size_t size, void *stream) { memset(at, value, size); return 0; }
int cudaMemGetInfo(size_t *left, size_t *all) { *left = *all = memory; return 0; }

// 75 and 76 are the compute capability's two numbers
int cudaDeviceGetAttribute(int *out, int attribute, int device) {
  *out = attribute == 75 ? 9 : attribute == 76 ? 0 : 64;
  return 0;
}

// cudaDeviceProp of CUDA 13: totalGlobalMem, warpSize, and the compute capability behind totalConstMem
int cudaGetDeviceProperties(char *out, int device) {
  memset(out, 0, 1008);
  *(size_t *)(out + 288) = memory;
  *(int *)(out + 308) = 32;
  *(int *)(out + 360) = 9;
  return 0;
}

void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
const char *cudaGetErrorString(int error) { return "no error"; }
const char *cudaGetErrorName(int error) { return "cudaSuccess"; }

const char *cudnnGetErrorString(int error) { return "no error"; }
int cudnnGetStream(void *handle, void **stream) { *stream = &token; return 0; }
size_t cudnnGetVersion(void) { return 91000; }
int cudnnGetRNNWeightSpaceSize(void *handle, void *rnn, size_t *size) { *size = 1 << 20; return 0; }
int cudnnDropoutGetStatesSize(void *handle, size_t *size) { *size = 64; return 0; }
int cudnnGetTensorNdDescriptor(void *tensor, int most, int *type, int *axes, int *sizes, int *strides) {
  *type = 0;
  *axes = 3;
  for (int axis = 0; axis < 3; axis++) sizes[axis] = strides[axis] = 1;
  return 0;
}
int cudnnGetRNNWeightParams(void *handle, void *rnn, int layer, size_t size, void *space, int number, void *matrix,
                            void **matrix_at, void *bias, void **bias_at) {
  *matrix_at = *bias_at = space;
  return 0;
}
