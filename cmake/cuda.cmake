# The CUDA backend, libgradus_cuda.so. Building it needs nvcc and the driver's header cuda.h; running it needs an NVIDIA
# driver and, for fused kernels, NVRTC, all of which are loaded at run time.
#
# AUTO builds it if nvcc is there, but not with sanitizers and not with clang: those builds are for tests of the CPU.
set(GRADUS_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (if nvcc is there), ON or OFF")
set_property(CACHE GRADUS_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GRADUS_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Compute capabilities that kernels are compiled for")
set(GRADUS_HAS_CUDA FALSE)
set(CUDA_WANTED ${GRADUS_CUDA})
if(GRADUS_CUDA STREQUAL "AUTO" AND (GRADUS_SANITIZE OR GRADUS_FUZZ OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU"))
  set(CUDA_WANTED OFF)
endif()
if(CUDA_WANTED)
  find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  find_path(CUDA_INCLUDE cuda.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  if(NOT NVCC OR NOT CUDA_INCLUDE)
    set(GRADUS_CUDA_REASON "nvcc or cuda.h was not found")
  else()
    # nvcc may be too old for an architecture, or its compiler for the host may be missing.
    set(CUDA_GENCODE)
    foreach(architecture ${GRADUS_CUDA_ARCHITECTURES})
      list(APPEND CUDA_GENCODE -gencode arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    if(NOT GRADUS_NVCC_WORKS STREQUAL "${NVCC} ${CUDA_GENCODE}")
      file(WRITE ${CMAKE_BINARY_DIR}/cuda/works.cu "__global__ void works(int *x) { *x = 1; }\n")
      execute_process(COMMAND ${NVCC} -std=c++20 -fatbin ${CUDA_GENCODE} works.cu -o works.fatbin
        WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/cuda RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
      if(NOT failed)
        set(GRADUS_NVCC_WORKS "${NVCC} ${CUDA_GENCODE}" CACHE INTERNAL "The nvcc and the architectures that were tried")
      else()
        file(WRITE ${CMAKE_BINARY_DIR}/cuda/works.log "${output}")
        set(GRADUS_CUDA_REASON "nvcc fails, see ${CMAKE_BINARY_DIR}/cuda/works.log")
      endif()
    endif()
  endif()
  if(NOT GRADUS_CUDA_REASON)
    set(GRADUS_HAS_CUDA TRUE)
  elseif(NOT GRADUS_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "GRADUS_CUDA is ${GRADUS_CUDA}, but ${GRADUS_CUDA_REASON}")
  endif()
endif()

# What `tools/setup.sh cuda` fetches: headers of libraries, and NVRTC for tests.
set(CUDA_PACKAGES $ENV{GRADUS_CUDA_PACKAGES})
if(NOT CUDA_PACKAGES AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(CUDA_PACKAGES $ENV{XDG_CACHE_HOME}/gradus/cuda)
elseif(NOT CUDA_PACKAGES)
  set(CUDA_PACKAGES $ENV{HOME}/.cache/gradus/cuda)
endif()

if(GRADUS_HAS_CUDA)
  # The generator writes the kernels of elementwise ops (codegen/opgen/cuda.c). Their machine code comes from one
  # intermediate text for the oldest architecture, which saves half of the time.
  set(CUDA_EXPRESSIONS)
  foreach(i RANGE 23)
    list(APPEND CUDA_EXPRESSIONS ${GEN}/expression_${i}.cu)
  endforeach()
  list(GET GRADUS_CUDA_ARCHITECTURES 0 oldest)
  list(TRANSFORM GRADUS_CUDA_ARCHITECTURES PREPEND sm_ OUTPUT_VARIABLE machines)
  list(JOIN machines "," machines)
  set(CUDA_EXPRESSION_GENCODE -gencode arch=compute_${oldest},code=[${machines}])
  # Each file of kernels/ becomes a fat binary, which images.c includes.
  file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS src/backend/cuda/kernels/*.cu)
  set(CUDA_IMAGES ${CMAKE_BINARY_DIR}/cuda)
  file(MAKE_DIRECTORY ${CUDA_IMAGES})
  set(CUDA_BINARIES)
  set(images "/* Written by cmake/cuda.cmake. */\n#include \"backend/cuda/images.h\"\n")
  set(table "")
  foreach(source ${CUDA_KERNELS} ${CUDA_EXPRESSIONS})
    get_filename_component(name ${source} NAME_WE)
    set(gencode ${CUDA_GENCODE})
    if(source IN_LIST CUDA_EXPRESSIONS)
      set(gencode ${CUDA_EXPRESSION_GENCODE})
    endif()
    set(binary ${CUDA_IMAGES}/${name}.fatbin)
    add_custom_command(OUTPUT ${binary}
      COMMAND ${NVCC} -std=c++20 -fatbin -fmad=false -diag-suppress=1046 --compress-mode=size ${gencode} -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
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
  find_path(CUBLAS_INCLUDE cublasLt.h HINTS ${CUDA_INCLUDE} ${CUDA_PACKAGES}/include)
  find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDA_INCLUDE} ${CUDA_PACKAGES}/include)
  # Programs load NVRTC when they run; the tests compile kernels with it if it is found here.
  find_file(NVRTC_LIBRARY NAMES libnvrtc.so.13 libnvrtc.so.12 libnvrtc.so
    HINTS ${CUDA_INCLUDE}/../lib64 ${CUDA_INCLUDE}/../lib ${CUDA_PACKAGES}/lib NO_DEFAULT_PATH)
  if(NOT CUBLAS_INCLUDE)
    list(FILTER CUDA_SOURCES EXCLUDE REGEX "/product[^/]*\\.c$")
  endif()
  if(NOT CUDNN_INCLUDE)
    list(FILTER CUDA_SOURCES EXCLUDE REGEX "/dnn[^/]*\\.c$")
  endif()
  # Text for kernels that NVRTC compiles; it follows gd_scalar_prelude.
  set(EXPRESSION_HEADERS)
  foreach(header error_word.h expression.h expression.cuh)
    list(APPEND EXPRESSION_HEADERS ${CMAKE_SOURCE_DIR}/src/backend/cuda/kernels/${header})
  endforeach()
  embed_headers(gd_cuda_expression_text cuda_expression_text.c ${EXPRESSION_HEADERS})
  gradus_backend(cuda ${CUDA_SOURCES} ${CUDA_IMAGES}/images.c ${GEN}/expression_table.c ${GEN}/cuda_expression_text.c)
  target_include_directories(gradus_backend_cuda SYSTEM PRIVATE ${CUDA_INCLUDE})
  foreach(folder ${CUBLAS_INCLUDE} ${CUDNN_INCLUDE})
    if(folder)
      target_include_directories(gradus_backend_cuda SYSTEM PRIVATE ${folder})
    endif()
  endforeach()
  target_link_libraries(gradus_backend_cuda PRIVATE ${CMAKE_DL_LIBS})
  if(NOT GRADUS_SANITIZE)
    target_link_options(gradus_backend_cuda PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS gradus_backend_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradus)
endif()
