# The Python module: gradus/_core.abi3.so and the files of python/gradus/. In the build folder it is python/gradus/,
# so that PYTHONPATH=build/python runs it.
set(GRADUS_PYTHON AUTO CACHE STRING "Build the Python module: AUTO (if Python's headers are there), ON or OFF")
set_property(CACHE GRADUS_PYTHON PROPERTY STRINGS AUTO ON OFF)
set(GRADUS_HAS_PYTHON OFF)
if(GRADUS_PYTHON STREQUAL "OFF" OR GRADUS_FUZZ)
  return()
endif()
find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  if(GRADUS_PYTHON STREQUAL "ON")
    message(FATAL_ERROR "GRADUS_PYTHON is ON, but there is no Python of version 3.11 or later with its headers")
  endif()
  return()
endif()
set(GRADUS_HAS_PYTHON ON)

file(GLOB PYTHON_SOURCES CONFIGURE_DEPENDS python/src/*.c)
add_library(gradus_python MODULE ${PYTHON_SOURCES} ${GEN}/python_calls.c ${GEN}/python_constructors.c)
add_dependencies(gradus_python generate)
target_include_directories(gradus_python PRIVATE python/src ${Python_INCLUDE_DIRS})
target_link_libraries(gradus_python PRIVATE gradus gradus_flags)
set_target_properties(gradus_python PROPERTIES
  OUTPUT_NAME _core PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/gradus
  INSTALL_RPATH "$ORIGIN")
# One binary for every version from 3.11 on, but for free-threaded ones, which have no stable ABI yet.
execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sysconfig.get_config_var('EXT_SUFFIX'))"
  OUTPUT_VARIABLE PYTHON_ABI OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE " " ";" PYTHON_ABI "${PYTHON_ABI}")
list(GET PYTHON_ABI 0 PYTHON_FREE_THREADED)
if(PYTHON_FREE_THREADED)
  list(GET PYTHON_ABI 1 PYTHON_SUFFIX)
else()
  set(PYTHON_SUFFIX .abi3.so)
  target_compile_definitions(gradus_python PRIVATE Py_LIMITED_API=0x030b0000)
endif()
set_target_properties(gradus_python PROPERTIES SUFFIX ${PYTHON_SUFFIX})

file(GLOB_RECURSE PYTHON_FILES CONFIGURE_DEPENDS python/gradus/*)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/python/stamp
  COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/python/gradus ${CMAKE_BINARY_DIR}/python/gradus
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/python/stamp
  DEPENDS ${PYTHON_FILES}
  COMMENT "Copying the Python files")
set(PYTHON_STUB ${CMAKE_BINARY_DIR}/python/gradus/_core.pyi)
add_custom_command(
  OUTPUT ${PYTHON_STUB}
  COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/method_types.py ${GEN}/python_methods.pyi
          ${CMAKE_SOURCE_DIR}/python/gradus/_torch_methods.py > ${CMAKE_BINARY_DIR}/python_methods.pyi
  COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/python/src/core.pyi.in -DFUNCTIONS=${GEN}/python_functions.pyi
          -DMETHODS=${CMAKE_BINARY_DIR}/python_methods.pyi -DOUT=${PYTHON_STUB} -P ${CMAKE_SOURCE_DIR}/cmake/stub.cmake
  DEPENDS ${GEN}/stamp python/src/core.pyi.in python/gradus/_torch_methods.py cmake/stub.cmake cmake/method_types.py
  COMMENT "Writing the types of the Python module")
# The classes of records: layers and networks.
set(PYTHON_STUBS ${PYTHON_STUB})
function(add_record_stub kinds to)
  set(out ${CMAKE_BINARY_DIR}/python/gradus/${to})
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/python/src/${kinds}.pyi.in -DFUNCTIONS=${GEN}/python_${kinds}.pyi
            -DMETHODS=/dev/null -DOUT=${out} -P ${CMAKE_SOURCE_DIR}/cmake/stub.cmake
    DEPENDS ${GEN}/stamp python/src/${kinds}.pyi.in cmake/stub.cmake
    COMMENT "Writing the types of ${kinds}")
  set(PYTHON_STUBS ${PYTHON_STUBS} ${out} PARENT_SCOPE)
endfunction()
add_record_stub(layers nn/_layers.pyi)
add_record_stub(zoo zoo.pyi)
add_custom_target(gradus_python_files ALL DEPENDS ${CMAKE_BINARY_DIR}/python/stamp ${PYTHON_STUBS})
# The command beside the package, as in a wheel.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/bin ${CMAKE_BINARY_DIR}/python/gradus)
file(CREATE_LINK ../../bin ${CMAKE_BINARY_DIR}/python/gradus/bin SYMBOLIC)
include(cmake/python_stubs.cmake)

# --- wheels (pyproject.toml) --------------------------------------------------------------------
# What a wheel holds is the component "python": the module and the library side by side in gradus/, the CUDA backend,
# which is found in the folder of the library, the command in gradus/bin and the headers in gradus/include. A wheel has no
# symbolic links, so the library has only the name that programs load.
if(SKBUILD)
  set_target_properties(gradus PROPERTIES VERSION ${GRADUS_SOVERSION})
  file(GLOB PYTHON_TOOL_SOURCES CONFIGURE_DEPENDS tools/gradus/*.c)
  add_executable(gradus_python_tool ${PYTHON_TOOL_SOURCES})
  target_compile_definitions(gradus_python_tool PRIVATE _GNU_SOURCE)
  target_link_libraries(gradus_python_tool PRIVATE gradus)
  set_target_properties(gradus_python_tool PROPERTIES
    OUTPUT_NAME gradus RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin INSTALL_RPATH "$ORIGIN/..")
  set(PYTHON_LIBRARIES gradus_python)
  if(GRADUS_HAS_CUDA)
    list(APPEND PYTHON_LIBRARIES gradus_backend_cuda)
  endif()
  add_custom_target(gradus_wheel DEPENDS gradus gradus_python_tool gradus_python_files ${PYTHON_LIBRARIES})
  install(TARGETS gradus LIBRARY DESTINATION gradus COMPONENT python NAMELINK_SKIP)
  install(TARGETS ${PYTHON_LIBRARIES} LIBRARY DESTINATION gradus COMPONENT python)
  foreach(stub ${PYTHON_STUBS})
    file(RELATIVE_PATH to ${CMAKE_BINARY_DIR}/python ${stub})
    get_filename_component(to ${to} DIRECTORY)
    install(FILES ${stub} DESTINATION ${to} COMPONENT python)
  endforeach()
  install(TARGETS gradus_python_tool RUNTIME DESTINATION gradus/bin COMPONENT python)
  foreach(folder include/gradus/ ${GEN}/gradus/)
    install(DIRECTORY ${folder} DESTINATION gradus/include/gradus COMPONENT python FILES_MATCHING PATTERN "*.h")
  endforeach()
endif()
