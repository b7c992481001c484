//go:build !unix

package dirblobs

import "os"

func lock(*os.File) error { return nil }

// removeAbandoned removes a temporary file; where it is open in another process the system refuses, which is right.
func removeAbandoned(path string) error {
	_ = os.Remove(path)
	return nil
}
