# For projects that know nothing of offld: cmake --toolchain PREFIX/share/cmake/offld/offldToolchain.cmake
# The compilers are clang and clang++, unless CC, CXX, CMAKE_C_COMPILER or CMAKE_CXX_COMPILER name others, and clang runs offld where it
# would run LLVM's linker wrapper. With -DOFFLD_AS_LINKER=ON offld is the linker instead (--ld-path=, with CMake 3.29 as linker type).
# Flags of your own for the linker go into CMAKE_EXE_LINKER_FLAGS_INIT and its like; CMAKE_EXE_LINKER_FLAGS takes the place of ours.

get_filename_component(_offld_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OFFLD_AS_LINKER)

# The newest that is installed under a name of its own, where none is plain `clang`.
set(_offld_numbers 30 29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14)
foreach(_offld_pair IN ITEMS "C:CC:clang" "CXX:CXX:clang++")
  string(REPLACE ":" ";" _offld_pair "${_offld_pair}")
  list(GET _offld_pair 0 _offld_language)
  list(GET _offld_pair 1 _offld_variable)
  list(GET _offld_pair 2 _offld_name)
  if(NOT DEFINED CMAKE_${_offld_language}_COMPILER AND "$ENV{${_offld_variable}}" STREQUAL "")
    list(TRANSFORM _offld_numbers PREPEND "${_offld_name}-" OUTPUT_VARIABLE _offld_names)
    find_program(OFFLD_${_offld_language}_COMPILER NAMES ${_offld_name} ${_offld_names} NAMES_PER_DIR)
    mark_as_advanced(OFFLD_${_offld_language}_COMPILER)
    if(OFFLD_${_offld_language}_COMPILER)
      set(CMAKE_${_offld_language}_COMPILER "${OFFLD_${_offld_language}_COMPILER}")
    endif()
  endif()
endforeach()

if(OFFLD_AS_LINKER)
  set(_offld_flag "--ld-path=${_offld_prefix}/bin/ld.offld")
else()
  set(_offld_flag "-B${_offld_prefix}/libexec/offld")
endif()
if(OFFLD_AS_LINKER AND NOT CMAKE_VERSION VERSION_LESS 3.29)
  foreach(_offld_language IN ITEMS C CXX Fortran HIP CUDA)
    set(CMAKE_${_offld_language}_USING_LINKER_OFFLD "${_offld_flag}")
  endforeach()
  set(CMAKE_LINKER_TYPE OFFLD)
else()
  foreach(_offld_kind IN ITEMS EXE SHARED MODULE)
    if(NOT "${CMAKE_${_offld_kind}_LINKER_FLAGS_INIT}" MATCHES "offld")
      string(APPEND CMAKE_${_offld_kind}_LINKER_FLAGS_INIT " ${_offld_flag}")
    endif()
  endforeach()
endif()
