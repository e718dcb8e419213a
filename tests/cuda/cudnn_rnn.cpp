/* cudnn_rnn.cpp - the functions of the emulated cuDNN for recurrent layers. It has descriptors but
 * supports no recurrent layer, so that the backend's own kernels run. */
#include <cudnn.h>

extern "C" {

#define DESCRIPTOR(name, type)                                     \
    cudnnStatus_t cudnnCreate##name##Descriptor(type *result) {    \
        *result = (type) new char;                                 \
        return CUDNN_STATUS_SUCCESS;                               \
    }                                                              \
    cudnnStatus_t cudnnDestroy##name##Descriptor(type descriptor) { \
        delete (char *)descriptor;                                 \
        return CUDNN_STATUS_SUCCESS;                               \
    }
DESCRIPTOR(Tensor, cudnnTensorDescriptor_t)
DESCRIPTOR(Dropout, cudnnDropoutDescriptor_t)
DESCRIPTOR(RNN, cudnnRNNDescriptor_t)
DESCRIPTOR(RNNData, cudnnRNNDataDescriptor_t)

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t, cudnnDataType_t, int, const int[],
                                         const int[]) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t, int, cudnnDataType_t *, int *,
                                         int[], int[]) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t, float, void *,
                                        size_t, unsigned long long) {
    return CUDNN_STATUS_SUCCESS; /* probability 0 needs no state */
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t, cudnnRNNAlgo_t, cudnnRNNMode_t,
                                       cudnnRNNBiasMode_t, cudnnDirectionMode_t, cudnnRNNInputMode_t,
                                       cudnnDataType_t, cudnnDataType_t, cudnnMathType_t, int32_t,
                                       int32_t, int32_t, int32_t, cudnnDropoutDescriptor_t,
                                       uint32_t) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t, cudnnDataType_t,
                                        cudnnRNNDataLayout_t, int, int, int, const int[], void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t,
                                        cudnnRNNDataDescriptor_t, size_t *, size_t *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t, size_t *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t, int32_t, size_t,
                                      const void *, int32_t, cudnnTensorDescriptor_t, void **,
                                      cudnnTensorDescriptor_t, void **) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnRNNForward(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnForwardMode_t,
                              const int32_t[], cudnnRNNDataDescriptor_t, const void *,
                              cudnnRNNDataDescriptor_t, void *, cudnnTensorDescriptor_t, const void *,
                              void *, cudnnTensorDescriptor_t, const void *, void *, size_t,
                              const void *, size_t, void *, size_t, void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t, cudnnRNNDescriptor_t, const int32_t[],
                                      cudnnRNNDataDescriptor_t, const void *, const void *,
                                      cudnnRNNDataDescriptor_t, void *, cudnnTensorDescriptor_t,
                                      const void *, const void *, void *, cudnnTensorDescriptor_t,
                                      const void *, const void *, void *, size_t, const void *,
                                      size_t, void *, size_t, void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t, cudnnRNNDescriptor_t, cudnnWgradMode_t,
                                         const int32_t[], cudnnRNNDataDescriptor_t, const void *,
                                         cudnnTensorDescriptor_t, const void *,
                                         cudnnRNNDataDescriptor_t, const void *, size_t, void *,
                                         size_t, void *, size_t, void *) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

} // extern "C"
