# Run by `cmake --install`: what names the prefix or is printed by the daemon. `ANNULUSD` is the
# built program, `SOURCES` the folder deploy.
set(PREFIX ${CMAKE_INSTALL_PREFIX})
set(ETC ${PREFIX}/etc)
if(PREFIX STREQUAL "/usr")
  set(ETC /etc)
endif()

set(unit ${PREFIX}/lib/systemd/system/annulusd.service)
message(STATUS "Installing: $ENV{DESTDIR}${unit}")
configure_file(${SOURCES}/systemd/annulusd.service $ENV{DESTDIR}${unit} @ONLY)

# One that is there may have been changed. env -i: no variable of this shell ends up in the file.
set(config $ENV{DESTDIR}${ETC}/annulus/annulusd.yaml)
if(NOT EXISTS ${config})
  message(STATUS "Installing: ${config}")
  execute_process(COMMAND env -i ${ANNULUSD} --print-config OUTPUT_VARIABLE text
                  COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${config} "${text}")
endif()
