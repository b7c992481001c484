package runner

// Main is the runner's whole program: `runner --fd N` serves one end of a socketpair (3 by default), `runner --stdio`
// serves its standard input and output. args are what follows the command's name. It returns the exit status.
func Main(args []string) int {
	return 1
}
