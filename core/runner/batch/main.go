package batch

import (
	"errors"
	"fmt"
	"os"

	"github.com/python-executor/python-executor/core/runner/agent"
)

// Main runs a runner's command. args are what follows the program's name. Main returns the exit code.
func Main(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "job":
			return command(args[1:], jobMain)
		case "job-prepare":
			return command(args[1:], prepareMain)
		case "job-feed":
			return command(args[1:], feedMain)
		}
	}
	return agent.Main(args)
}

// ExitNotRun is the exit code of a command that has run no program, or has failed itself.
const ExitNotRun = 125

const exitUsage = 2

// command runs do with the folders that args name.
func command(args []string, do func(input, output, feed string) int) int {
	input, output, feed, err := folders(args)
	if err != nil {
		say(err)
		return exitUsage
	}
	return do(input, output, feed)
}

func folders(args []string) (input, output, feed string, err error) {
	for len(args) > 0 {
		if len(args) == 1 {
			return "", "", "", fmt.Errorf("%s: must have a folder", args[0])
		}
		switch args[0] {
		case "--input":
			input = args[1]
		case "--output":
			output = args[1]
		case "--feed":
			feed = args[1]
		default:
			return "", "", "", fmt.Errorf("unknown argument %q (--input DIR --output DIR --feed DIR)", args[0])
		}
		args = args[2:]
	}
	if input == "" || output == "" {
		return "", "", "", errors.New("--input and --output: must be given")
	}
	return input, output, feed, nil
}

func say(err error) { _, _ = fmt.Fprintln(os.Stderr, "runner:", err) }
