//go:build !linux

package protocol

import "os"

func (f *Writer) CarriesFiles() bool { return false }

func (f *Writer) SendFile(FrameType, *os.File) error { return ErrNotPassed }
