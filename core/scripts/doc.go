// Package scripts is a Backend in the core. It runs only those scripts of this host that the configuration allows by name. It
// is no sandbox: a script has the rights of the server.
//
// Run checks the script's path, arguments and environment against the Policy and starts a runner (core/runner). The runner
// runs the script without a shell, in the script's folder. At a limit, at a cancel and at the death of this process it kills
// the script with everything that the script has started. The output goes to the log of the Execution and, up to a bound, to
// a file of the run. At the end an audit line in JSON tells the requester, the script and the result.
package scripts
