package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
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
	decoder := yaml.NewDecoder(bytes.NewReader(data))
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
	errorLine     = regexp.MustCompile(`\bline (\d+): `)
	unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)
	// parserError matches errors of the YAML parser, which counts lines from zero.
	// Its scanner counts from one.
	parserError = regexp.MustCompile(`did not find expected (key$|node content|'-' indicator|',' or|<)`)
	tabIndent   = regexp.MustCompile(`(?m)^[ \t]*\t`)
)

// explainSyntax explains err, which is from the YAML parser. It does not quote the file:
// a password that starts with * looks like a reference.
func explainSyntax(err error, data []byte) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := errorLine.FindStringSubmatchIndex(text); m != nil {
		line, _ = strconv.Atoi(text[m[2]:m[3]])
		text = text[:m[0]] + text[m[1]:]
	}
	if parserError.MatchString(text) {
		line++
	}
	if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		at := max(0, bytes.Index(data, []byte("*"+m[1])))
		return 1 + bytes.Count(data[:at], []byte("\n")), "no such anchor; write a value that starts with * in quotes"
	}
	if at := tabIndent.FindIndex(data); at != nil {
		return 1 + bytes.Count(data[:at[0]], []byte("\n")), "the line is indented with a tab; YAML requires spaces"
	}
	return line, "not YAML: " + text
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}
