# Run by `cmake --install`: makes the files that name the prefix or that the programs print.
# `ANNULUSD` is the built daemon, `ANNULUS` the client, `SOURCES` the folder deploy.
set(PREFIX ${CMAKE_INSTALL_PREFIX})
set(ETC ${PREFIX}/etc)
if(PREFIX STREQUAL "/usr")
  set(ETC /etc)
endif()

set(unit ${PREFIX}/lib/systemd/system/annulusd.service)
message(STATUS "Installing: $ENV{DESTDIR}${unit}")
configure_file(${SOURCES}/systemd/annulusd.service $ENV{DESTDIR}${unit} @ONLY)

# A file that is there stays: somebody may have changed it. env -i: no variable of this shell gets into
# the file. Documents outlive the service in the folder of its state.
set(config $ENV{DESTDIR}${ETC}/annulus/annulusd.yaml)
if(NOT EXISTS ${config})
  message(STATUS "Installing: ${config}")
  execute_process(COMMAND env -i ${ANNULUSD} --print-config --documents /var/lib/annulus/documents OUTPUT_VARIABLE text
                  COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${config} "${text}")
endif()

# Manuals, packed as Debian wants them: without a time, so that equal sources give equal bytes.
function(install_manual section name)
  set(folder $ENV{DESTDIR}${PREFIX}/share/man/man${section})
  message(STATUS "Installing: ${folder}/${name}.${section}.gz")
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND env -i ${ARGN} COMMAND gzip --best --no-name
                  OUTPUT_FILE ${folder}/${name}.${section}.gz COMMAND_ERROR_IS_FATAL ANY)
endfunction()
install_manual(8 annulusd ${ANNULUSD} --man)
install_manual(1 annulus ${ANNULUS} help --man)

# install_output(FILE COMMAND...): installs what the command prints as FILE.
function(install_output file)
  message(STATUS "Installing: $ENV{DESTDIR}${PREFIX}/${file}")
  get_filename_component(folder $ENV{DESTDIR}${PREFIX}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND env -i ${ARGN} OUTPUT_FILE $ENV{DESTDIR}${PREFIX}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
install_output(share/bash-completion/completions/annulus ${ANNULUS} completion bash)
install_output(share/zsh/vendor-completions/_annulus ${ANNULUS} completion zsh)
install_output(share/fish/vendor_completions.d/annulus.fish ${ANNULUS} completion fish)
