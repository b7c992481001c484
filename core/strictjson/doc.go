// Package strictjson reads JSON of callers more strictly than encoding/json: an unknown field is an error with its name, and text that
// encoding/json would change is refused.
//
// It does not check the values of fields.
//
// One flow: a reader of a request calls CheckText with the bytes of an object, and Decode if there is no error.
package strictjson
