# find_package(offld): offld as the linker of targets with device code. docs/guides/build-systems.md has examples.
#
#   offld_enable(TARGET [LINKER] [OPENMP_TARGETS TRIPLE...] [OFFLOAD_ARCHS ARCH...])
#
# offld links TARGET; for a static or object library, offld links the targets that use the library. With OPENMP_TARGETS or
# OFFLOAD_ARCHS, the sources are compiled for these devices as well. LINKER: clang runs offld as the linker (--ld-path=), instead of as
# the wrapper around its linker.
#
# Variables: offld_EXECUTABLE, offld_NAMES_DIR (for clang's -B), offld_LINKER. Target: offld::offld, the program.
# CMake 3.29 and later also have the linker type OFFLD (CMAKE_LINKER_TYPE, LINKER_TYPE).

get_filename_component(_offld_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(offld_EXECUTABLE "${_offld_prefix}/bin/offld")
set(offld_NAMES_DIR "${_offld_prefix}/libexec/offld")
set(offld_LINKER "${_offld_prefix}/bin/ld.offld")

foreach(_offld_file IN ITEMS "${offld_EXECUTABLE}" "${offld_NAMES_DIR}/clang-linker-wrapper" "${offld_LINKER}")
  if(NOT EXISTS "${_offld_file}")
    set(offld_FOUND FALSE)
    set(offld_NOT_FOUND_MESSAGE "${_offld_file} is missing: the installation of offld in ${_offld_prefix} is incomplete")
    return()
  endif()
endforeach()
unset(_offld_file)
unset(_offld_prefix)

if(NOT TARGET offld::offld)
  add_executable(offld::offld IMPORTED)
  set_target_properties(offld::offld PROPERTIES IMPORTED_LOCATION "${offld_EXECUTABLE}")
endif()

# CMake 3.29 and later: set_target_properties(TARGET PROPERTIES LINKER_TYPE OFFLD).
foreach(_offld_language IN ITEMS C CXX Fortran HIP CUDA)
  set(CMAKE_${_offld_language}_USING_LINKER_OFFLD "--ld-path=${offld_LINKER}")
endforeach()
unset(_offld_language)

function(offld_enable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LINKER" "" "OPENMP_TARGETS;OFFLOAD_ARCHS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "offld_enable(${target}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT TARGET "${target}")
    message(FATAL_ERROR "offld_enable(${target}): ${target} is not a target of this project")
  endif()

  # Only clang and compilers based on clang run a wrapper and support --ld-path=.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(is_clang FALSE)
  foreach(language IN LISTS languages)
    if(CMAKE_${language}_COMPILER_ID MATCHES "Clang|LLVM")
      set(is_clang TRUE)
    endif()
  endforeach()
  if(NOT is_clang)
    message(FATAL_ERROR "offld_enable(${target}): no language has clang as its compiler: set CMAKE_C_COMPILER=clang and "
                        "CMAKE_CXX_COMPILER=clang++, or use ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/offldToolchain.cmake")
  endif()

  # Libraries that are not linked themselves pass the link options on to the targets that use them.
  get_target_property(type "${target}" TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(own INTERFACE)
    set(link INTERFACE)
  elseif(type MATCHES "^(STATIC|OBJECT)_LIBRARY$")
    set(own PRIVATE)
    set(link INTERFACE)
  else()
    set(own PRIVATE)
    set(link PRIVATE)
  endif()

  set(offload "")
  set(runtime "")
  if(arg_OPENMP_TARGETS)
    list(JOIN arg_OPENMP_TARGETS "," triples)
    list(APPEND offload -fopenmp "-fopenmp-targets=${triples}")
    set(runtime -fopenmp)
  endif()
  foreach(arch IN LISTS arg_OFFLOAD_ARCHS)
    list(APPEND offload "--offload-arch=${arch}")
  endforeach()
  set(compiled "$<COMPILE_LANG_AND_ID:C,Clang,AppleClang,IntelLLVM,CrayClang,ROCMClang>"
               "$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang,IntelLLVM,CrayClang,ROCMClang>" "$<COMPILE_LANG_AND_ID:HIP,Clang,ROCMClang>"
               "$<COMPILE_LANG_AND_ID:Fortran,LLVMFlang>")
  list(JOIN compiled "," compiled)

  if(arg_LINKER)
    target_compile_options("${target}" ${own} "$<$<OR:${compiled}>:${offload}>")
    target_link_options("${target}" ${link} ${runtime})
    if(link STREQUAL "PRIVATE" AND NOT CMAKE_VERSION VERSION_LESS 3.29)
      set_target_properties("${target}" PROPERTIES LINKER_TYPE OFFLD)
    else()
      target_link_options("${target}" ${link} "--ld-path=${offld_LINKER}")
    endif()
  else()
    # For HIP, clang also runs the wrapper when it compiles.
    target_compile_options("${target}" ${own} "$<$<OR:${compiled}>:${offload};-B${offld_NAMES_DIR}>")
    target_link_options("${target}" ${link} ${offload} "-B${offld_NAMES_DIR}")
  endif()
endfunction()
