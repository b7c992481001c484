package drivers

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

//go:embed python/program.py
var pythonProgram string

//go:embed python/loop.py
var pythonLoop string

// laterImports are the modules that the driver needs beside those of program.py.
const laterImports = "import _contextvars, io, json, types\n"

// ProgramDriver returns what a Program is run by: Python that defines the function run.
var ProgramDriver = sync.OnceValue(func() string {
	later := laterImports + pythonDisplay + pythonModules + pythonMagics + pythonLoop
	return fmt.Sprintf("MAX_DATA = %d\nMAX_DISPLAYS = %d\nTRACE = bytes.fromhex(%q)\nLATER = bytes.fromhex(%q)\n", executor.MaxDisplayData,
		executor.MaxDisplays, hex.EncodeToString([]byte(pythonTrace)), hex.EncodeToString([]byte(later))) + pythonCode + pythonProgram
})

// Program returns the main file of a Python program that runs code as a program and displays what a cell displays. The program appends
// an Answer to the file place for each Display, and a last one if Displays were dropped. It first gives its own file the text code, so that
// tracebacks, inspect and multiprocessing find it there.
//
// A fork server leaves the names that ProgramDriver defines in builtins._python_executor. Where they are not there, the program runs the
// file driver, which has that text, and removes it. The text of code is in the main file as it is, because a fork server looks for words
// and imports in it.
func Program(code, driver, place string) string {
	literal := strings.NewReplacer(`\`, `\\`, "'''", `\'\'\'`, "\r", `\r`, "\x00", `\x00`).Replace(code)
	if strings.HasSuffix(literal, "'") {
		literal = literal[:len(literal)-1] + `\'`
	}
	return fmt.Sprintf(`(__builtins__.__dict__.pop("_python_executor", None) or (lambda path, run: (lambda names: getattr(__builtins__, run)(`+
		`compile(__loader__.get_data(path), "<python-executor>", run), names) or names)(`+
		`{"__name__": "_python_executor", "__builtins__": dict(__builtins__.__dict__), "DRIVER": [path]}))(bytes.fromhex(%q).decode(), "ex" "ec"))["run"](`+
		`'''\`+"\n%s''', bytes.fromhex(%q).decode())\n",
		hex.EncodeToString([]byte(driver)), literal, hex.EncodeToString([]byte(place)))
}
