# k3_library(NAME SOURCES ... DEPENDS ...): a static library of common/ or services/.
function(k3_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
endfunction()

# The target that builds every executable in <build>/bin, and no test.
add_custom_target(binaries)

# k3_binary(NAME SOURCES ... DEPENDS ...): an executable in <build>/bin.
function(k3_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  add_dependencies(binaries ${name})
endfunction()

# k3_test(NAME SOURCES ... DEPENDS ...): a GoogleTest binary in <build>/tests; tests/run.sh runs every
# binary it finds there.
function(k3_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE K3_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
