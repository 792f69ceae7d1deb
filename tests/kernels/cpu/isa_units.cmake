# Fails if a unit compiled for one instruction set exports any function but the one that returns its
# kernels, or uses one of the standard library, which it exports where nothing is inlined: see
# kernels/cpu/simd/kernels.h. Variables: NM, OBJECTS, the objects of the library, and SOURCES, the
# folder of its sources.
set(found 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/isa/[a-z0-9_]+\\.cc\\.o$")
    continue()
  endif()
  math(EXPR found "${found} + 1")
  execute_process(
    COMMAND ${NM} --defined-only --extern-only --demangle --format=posix ${object}
    OUTPUT_VARIABLE symbols
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "cannot read the symbols of ${object}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
  foreach(line IN LISTS lines)
    # T: a function; W: a weak one, shared between units; i: one chosen at load time.
    if(line MATCHES " [TWi] " AND NOT line MATCHES "^annulus::cpu::[A-Z][A-Za-z0-9]+Kernels\\(\\) T ")
      message(SEND_ERROR "${object} exports ${line}")
    endif()
  endforeach()
endforeach()
file(GLOB units "${SOURCES}/isa/*" "${SOURCES}/simd/kernels.h" "${SOURCES}/simd/dot_kernels.h")
foreach(unit IN LISTS units)
  file(STRINGS "${unit}" uses REGEX "std::")
  if(uses)
    message(SEND_ERROR "${unit} uses the standard library: ${uses}")
  endif()
endforeach()
if(NOT found EQUAL 6)
  message(FATAL_ERROR "expected 6 objects of instruction sets, found ${found}")
endif()
