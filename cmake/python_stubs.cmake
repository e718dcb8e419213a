# Types of the classes that are made from records of training: python/src/KINDS.pyi.in, with what the generator writes.
set(TRAINING_STUBS "")
foreach(row "optimizers:optim/_constructors" "schedules:optim/_schedules" "metrics:_metric_classes" "callbacks:_callback_classes")
  string(REGEX REPLACE ":.*" "" kinds ${row})
  string(REGEX REPLACE ".*:" "" to ${row})
  set(out ${CMAKE_BINARY_DIR}/python/gradus/${to}.pyi)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/python/src/${kinds}.pyi.in -DFUNCTIONS=${GEN}/python_${kinds}.pyi
            -DMETHODS=/dev/null -DOUT=${out} -P ${CMAKE_SOURCE_DIR}/cmake/stub.cmake
    DEPENDS ${GEN}/stamp python/src/${kinds}.pyi.in cmake/stub.cmake
    COMMENT "Writing the types of ${kinds}")
  list(APPEND TRAINING_STUBS ${out})
  get_filename_component(folder gradus/${to} DIRECTORY)
  if(SKBUILD)
    install(FILES ${out} DESTINATION ${folder} COMPONENT python)
  endif()
endforeach()
add_custom_target(gradus_training_stubs DEPENDS ${TRAINING_STUBS})
add_dependencies(gradus_python_files gradus_training_stubs)
