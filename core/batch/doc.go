// Package batch runs one program for many cases and judges what each of them printed. It stands in front of executor.Executions: each case
// is an Execution with an id, a sandbox and a log of its own. The program's files are uploaded once, and all cases read the same Source.
//
// docs/decisions/0020 has the rules.
package batch
