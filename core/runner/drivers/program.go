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

// ProgramDriver returns the driver of a Program: the text that runs the code, that of TRACE and that of LATER, each but the last with a
// zero byte behind it.
var ProgramDriver = sync.OnceValue(func() string {
	return strings.Join([]string{pythonCode + pythonProgram, pythonTrace, laterImports + pythonDisplay + pythonModules + pythonMagics + pythonLoop}, "\x00")
})

// Program returns the main file of a Python program that runs code as a program and displays what a cell displays. The program appends
// an Answer to the file place for each Display, and a last one if Displays were dropped. It first gives its own file the text code, so that
// tracebacks, inspect and multiprocessing find it there.
//
// A fork server leaves the driver, compiled, in builtins._python_executor. Where it is not there, the program reads ProgramDriver from the
// file driver, and removes that. The text of code is in the main file as it is, because a fork server looks for words and imports in it.
func Program(code, driver, place string) string {
	literal := strings.NewReplacer(`\`, `\\`, "'''", `\'\'\'`, "\r", `\r`, "\x00", `\x00`).Replace(code)
	if strings.HasSuffix(literal, "'") {
		literal = literal[:len(literal)-1] + `\'`
	}
	return fmt.Sprintf(`(lambda source, driver, place, run: getattr(__builtins__, run)(driver[0], {`+
		`"__name__": "_python_executor", "__builtins__": dict(__builtins__.__dict__), "SOURCE": source, "TRACE": driver[1], "LATER": driver[2], `+
		`"DRIVER": driver[3:], "PLACE": place, "MAX_DATA": %d, "MAX_DISPLAYS": %d}))('''\`+"\n%s''',\n"+
		`__builtins__.__dict__.pop("_python_executor", None) or (lambda path: (lambda text: (compile(text[0], "<python-executor>", "ex" "ec"), *text[1:], path))`+
		`(__loader__.get_data(path).split(bytes(1))))(bytes.fromhex(%q).decode()), bytes.fromhex(%q).decode(), "ex" "ec")`+"\n",
		executor.MaxDisplayData, executor.MaxDisplays, literal, hex.EncodeToString([]byte(driver)), hex.EncodeToString([]byte(place)))
}
