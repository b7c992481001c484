package cmd

import "golang.org/x/sys/unix"

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA

func replaceDescriptor(by, fd int) error { return unix.Dup2(by, fd) }
