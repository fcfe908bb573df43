package kafka

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/feedbridge/feedbridge/feed"
)

// Key is the location of an entity's key: "/a/b" is a JSON Pointer (RFC 6901) into the body,
// "header:Name" is the first header of that name, and the empty Key means no key.
//
// The value at the pointer must be a string, whose text is the key, or a number, true or false,
// which are used as written in the body. If an object has the same name twice, its first value
// counts.
type Key string

const headerKey = "header:"

// ParseKey parses a Key. It returns an error if s is not valid.
func ParseKey(s string) (Key, error) {
	switch name, isHeader := strings.CutPrefix(s, headerKey); {
	case s == "":
	case isHeader && strings.TrimSpace(name) == "":
		return "", errors.New("header: has no name; want one such as header:Content-ID")
	case isHeader:
	case s[0] != '/':
		return "", fmt.Errorf("%q: want a JSON pointer such as /id, or header:<name>", s)
	default:
		if _, err := pointer(s); err != nil {
			return "", err
		}
	}
	return Key(s), nil
}

// Expected describes the values, for an error.
func (Key) Expected() string { return "want a JSON pointer such as /id, or header:<name>" }

// UnmarshalText is [ParseKey].
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

// pointer returns the unescaped names of a JSON Pointer.
func pointer(s string) ([]string, error) {
	if badEscape.MatchString(s) {
		return nil, fmt.Errorf("%q: in a JSON pointer a ~ is written ~0, and a / within a name ~1", s)
	}
	names := strings.Split(s[1:], "/")
	for i, name := range names {
		names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
	}
	return names, nil
}

var badEscape = regexp.MustCompile(`~([^01]|$)`)

// keyer returns the key of an entity, or an error with the reason why it has none.
type keyer func(feed.Entity) ([]byte, error)

// newKeyer returns a function that finds the key, nil for the empty Key.
func (k Key) newKeyer() keyer {
	if k == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(string(k), headerKey); ok {
		name = strings.TrimSpace(name)
		return func(e feed.Entity) ([]byte, error) {
			if v, ok := e.Header.Get(name); ok {
				return []byte(v), nil
			}
			return nil, fmt.Errorf("it has no header %s", name)
		}
	}
	names, _ := pointer(string(k)) // the key is valid
	return func(e feed.Entity) ([]byte, error) {
		d := json.NewDecoder(bytes.NewReader(e.Body))
		d.UseNumber()
		key, err := findValue(d, names)
		switch {
		case err != nil:
			return nil, fmt.Errorf("its body is not JSON as far as %s: %w", k, err)
		case key == nil:
			return nil, fmt.Errorf("its body has no text, number, true or false at %s", k)
		}
		return key, nil
	}
}

// Find returns a function that finds the key of a message, of feedbridge or of another program;
// ok is false if it has none. For the empty Key it returns nil.
func (k Key) Find() func(header feed.Header, body []byte) (key string, ok bool) {
	of := k.newKeyer()
	if of == nil {
		return nil
	}
	return func(header feed.Header, body []byte) (string, bool) {
		key, err := of(feed.Entity{Header: header, Body: body})
		return string(key), err == nil
	}
}

// findValue returns the text of the value that names lead to, nil if it is none or there is no value. It
// reads the body only up to that value.
func findValue(d *json.Decoder, names []string) ([]byte, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return keyText(t), nil
	}
	if t != json.Delim('{') && t != json.Delim('[') {
		return nil, nil
	}
	for i := 0; d.More(); i++ {
		var name json.Token = strconv.Itoa(i)
		if t == json.Delim('{') {
			if name, err = d.Token(); err != nil {
				return nil, err
			}
		}
		if name == names[0] {
			return findValue(d, names[1:])
		}
		if err := d.Decode(new(json.RawMessage)); err != nil {
			return nil, err
		}
	}
	_, err = d.Token() // the closing bracket: without it there may have been more
	return nil, err
}

// keyText returns the key for a JSON value, nil if it has none.
func keyText(t json.Token) []byte {
	switch v := t.(type) {
	case string:
		return []byte(v)
	case json.Number:
		return []byte(v)
	case bool:
		return fmt.Append(nil, v)
	}
	return nil
}
