# For projects that you cannot edit: cmake --toolchain PREFIX/share/cmake/offld/offldToolchain.cmake
# The compilers are clang and clang++, unless CC, CXX, CMAKE_C_COMPILER or CMAKE_CXX_COMPILER select others. clang runs offld instead of
# LLVM's linker wrapper. With -DOFFLD_AS_LINKER=ON, clang runs offld as the linker (--ld-path=; with CMake 3.29, the linker type).
# Put your flags into the variables that end in _INIT (CMAKE_CXX_FLAGS_INIT, CMAKE_EXE_LINKER_FLAGS_INIT). CMAKE_CXX_FLAGS and similar
# variables would replace the flags of this file.

get_filename_component(_offld_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OFFLD_AS_LINKER)

# The newest installed clang with a version in its name, if there is no plain `clang`.
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
# Without this check, clang would run LLVM's wrapper.
foreach(_offld_tool IN ITEMS bin/ld.offld libexec/offld/clang-linker-wrapper)
  if(NOT EXISTS "${_offld_prefix}/${_offld_tool}")
    message(FATAL_ERROR "offld is not installed in ${_offld_prefix}: ${_offld_tool} is missing. Run `make install`, and use the toolchain file of the installation.")
  endif()
endforeach()
if(OFFLD_AS_LINKER AND NOT CMAKE_VERSION VERSION_LESS 3.29)
  foreach(_offld_language IN ITEMS C CXX Fortran HIP CUDA)
    set(CMAKE_${_offld_language}_USING_LINKER_OFFLD "${_offld_flag}")
  endforeach()
  set(CMAKE_LINKER_TYPE OFFLD)
else()
  if(NOT OFFLD_AS_LINKER)
    # For HIP, clang runs its wrapper when it compiles.
    foreach(_offld_language IN ITEMS C CXX HIP Fortran)
      if(NOT "${CMAKE_${_offld_language}_FLAGS_INIT}" MATCHES "offld")
        string(APPEND CMAKE_${_offld_language}_FLAGS_INIT " ${_offld_flag}")
      endif()
    endforeach()
  endif()
  foreach(_offld_kind IN ITEMS EXE SHARED MODULE)
    if(NOT "${CMAKE_${_offld_kind}_LINKER_FLAGS_INIT}" MATCHES "offld")
      string(APPEND CMAKE_${_offld_kind}_LINKER_FLAGS_INIT " ${_offld_flag}")
    endif()
  endforeach()
endif()
