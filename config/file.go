package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v4"
)

// readFile returns the content of a file. Its error has the cure.
func readFile(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no such file; name another with -c")
	case errors.Is(err, syscall.EISDIR):
		return nil, errors.New("this is a directory; name the file in it with -c")
	case err != nil:
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return data, nil
}

// emptyFile is the error about a file without a value.
const emptyFile = "the file is empty; it needs at least a feed"

// parseYAML returns the node of the only document in data. Its error has the line, if
// that is known.
func parseYAML(data []byte) (*yaml.Node, *Error) {
	// Version 1.2 differs in nothing that is read here.
	decoder := yaml.NewDecoder(bytes.NewReader(directive.ReplaceAll(data, []byte("${1}1.1"))))
	var doc, second yaml.Node
	err := decoder.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF) || err == nil && isNull(doc.Content[0]):
		return nil, &Error{Text: emptyFile}
	case err == nil:
		err = decoder.Decode(&second)
	}
	switch {
	case err == nil:
		return nil, &Error{Line: second.Line, Text: "a second document starts here; the file must have only one"}
	case !errors.Is(err, io.EOF):
		line, text := explainSyntax(err, data)
		return nil, &Error{Line: line, Text: text}
	}
	return doc.Content[0], nil
}

var (
	directive     = regexp.MustCompile(`\A(\x{FEFF}?%YAML +)1\.2\b`)
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
	tabIndent     = regexp.MustCompile(`(?m)^[ \t]*\t`)
)

// explainSyntax explains err, which is from the YAML parser. It does not quote the file:
// a password that starts with * looks like a reference.
func explainSyntax(err error, data []byte) (line int, text string) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return 0, "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	}
	line, text = e.Mark.Line, "not YAML: "+e.Message
	switch {
	case unknownAnchor.MatchString(text):
		return line, "no such anchor; write a value that starts with * in quotes"
	case tabIndent.Match(data):
		at := tabIndent.FindIndex(data)
		return 1 + bytes.Count(data[:at[0]], []byte("\n")), "the line is indented with a tab; YAML requires spaces"
	case strings.HasSuffix(e.Message, "end of stream"):
		return e.ContextMark.Line, text + "; the quote of this line is not closed"
	case strings.HasPrefix(e.Message, "did not find expected ','"):
		return line, text + fmt.Sprintf(" of line %d; close it, and put values like ${NAME} or a: b in quotes there", e.ContextMark.Line)
	case e.Message == "did not find expected key":
		return line, text + "; indent the line like the other keys of its mapping"
	case e.Message == "found incompatible YAML document":
		return line, "the directive %YAML has a version that is not supported; remove the line"
	}
	return line, text
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}
