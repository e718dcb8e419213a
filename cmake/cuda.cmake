# The CUDA backend, libgradus_cuda.so. Building it needs nvcc and the driver's header cuda.h; running it needs an NVIDIA
# driver and, for fused kernels, NVRTC, all of which are loaded at run time.
set(GRADUS_CUDA OFF CACHE STRING "Build the CUDA backend, which is not complete yet: AUTO (if nvcc is there), ON or OFF")
set(GRADUS_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Compute capabilities that kernels are compiled for")
set(GRADUS_HAS_CUDA FALSE)
if(NOT GRADUS_CUDA STREQUAL "OFF")
  find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  find_path(CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  if(NVCC AND CUDA_INCLUDE)
    set(GRADUS_HAS_CUDA TRUE)
  elseif(GRADUS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRADUS_CUDA is ON, but nvcc or cuda.h was not found")
  endif()
endif()

if(GRADUS_HAS_CUDA)
  set(CUDA_GENCODE)
  foreach(architecture ${GRADUS_CUDA_ARCHITECTURES})
    list(APPEND CUDA_GENCODE -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  # Each file of kernels/ becomes a fat binary, which images.c includes.
  file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS src/backend/cuda/kernels/*.cu)
  set(CUDA_IMAGES ${CMAKE_BINARY_DIR}/cuda)
  file(MAKE_DIRECTORY ${CUDA_IMAGES})
  set(CUDA_BINARIES)
  set(images "/* Written by cmake/cuda.cmake. */\n#include \"backend/cuda/images.h\"\n")
  set(table "")
  foreach(source ${CUDA_KERNELS})
    get_filename_component(name ${source} NAME_WE)
    set(binary ${CUDA_IMAGES}/${name}.fatbin)
    add_custom_command(OUTPUT ${binary}
      COMMAND ${NVCC} -std=c++20 -fatbin -fmad=false ${CUDA_GENCODE} -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
        -I${GEN} -MD -MF ${binary}.d ${source} -o ${binary}
      DEPENDS ${source} generate DEPFILE ${binary}.d
      COMMENT "Compiling CUDA kernels ${name}.cu" VERBATIM)
    list(APPEND CUDA_BINARIES ${binary})
    string(APPEND images "__asm__(\".section .rodata\\n.balign 64\\n.hidden gd_cuda_image_${name}\\n.global gd_cuda_image_${name}\\n\"\n"
      "        \"gd_cuda_image_${name}: .incbin \\\"${binary}\\\"\\n.previous\");\n"
      "extern const unsigned char gd_cuda_image_${name}[];\n")
    string(APPEND table "    {\"${name}\", gd_cuda_image_${name}},\n")
  endforeach()
  string(APPEND images "const gd_cuda_image gd_cuda_images[] = {\n${table}};\n"
    "const int gd_cuda_image_count = sizeof gd_cuda_images / sizeof *gd_cuda_images;\n")
  file(CONFIGURE OUTPUT ${CUDA_IMAGES}/images.c CONTENT "${images}" @ONLY)
  set_source_files_properties(${CUDA_IMAGES}/images.c PROPERTIES OBJECT_DEPENDS "${CUDA_BINARIES}")
  file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS src/backend/cuda/*.c)
  # Libraries are loaded at run time; where a header is missing, the backend does without the library.
  # product*.c need cublasLt.h, dnn*.c need cudnn.h.
  find_path(CUBLAS_INCLUDE cublasLt.h HINTS ${CUDA_INCLUDE})
  find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDA_INCLUDE})
  if(NOT CUBLAS_INCLUDE)
    list(FILTER CUDA_SOURCES EXCLUDE REGEX "/product[^/]*\\.c$")
    list(APPEND GRADUS_CUDA_LACKS cuBLASLt)
  endif()
  if(NOT CUDNN_INCLUDE)
    list(FILTER CUDA_SOURCES EXCLUDE REGEX "/dnn[^/]*\\.c$")
    list(APPEND GRADUS_CUDA_LACKS cuDNN)
  endif()
  gradus_backend(cuda ${CUDA_SOURCES} ${CUDA_IMAGES}/images.c)
  target_include_directories(gradus_backend_cuda SYSTEM PRIVATE ${CUDA_INCLUDE})
  foreach(folder ${CUBLAS_INCLUDE} ${CUDNN_INCLUDE})
    if(folder)
      target_include_directories(gradus_backend_cuda SYSTEM PRIVATE ${folder})
    endif()
  endforeach()
  target_link_libraries(gradus_backend_cuda PRIVATE ${CMAKE_DL_LIBS})
  install(TARGETS gradus_backend_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradus)
endif()
