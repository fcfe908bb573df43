package syndication

import (
	"bytes"
	"encoding/xml"
	"strconv"
	"strings"
)

const (
	// mostEntities is how many entities of a document type declaration are known,
	// and longestEntity how many bytes the value of one may have.
	mostEntities  = 100
	longestEntity = 4 << 10
	// mostExpanded is how many bytes the references of a document may become. Those
	// behind that are left as they are written.
	mostExpanded = 256 << 10
)

// readEntities reads the general entities that the internal subset of a document
// type declaration defines. Those that are elsewhere are never fetched, and
// parameter entities are not used.
func (r *Reader) readEntities(doctype []byte) {
	_, subset, ok := bytes.Cut(doctype, []byte("["))
	if !ok {
		return
	}
	for i := 0; i < len(subset); {
		n := bytes.IndexByte(subset[i:], '<')
		if n < 0 {
			return
		}
		i += n
		switch rest := subset[i:]; {
		case bytes.HasPrefix(rest, openComment) || bytes.HasPrefix(rest, []byte("<?")):
			end, _ := markup(rest, 0)
			i += max(end, 1)
		case bytes.HasPrefix(rest, []byte("<!ENTITY")):
			i += r.readEntity(rest)
		default:
			i++
		}
	}
}

// readEntity reads one declaration, and returns how many bytes of it were read.
func (r *Reader) readEntity(b []byte) int {
	i := len("<!ENTITY")
	skip := func(class *[256]bool) []byte {
		start := i
		for i < len(b) && class[b[i]] {
			i++
		}
		return b[start:i]
	}
	before := skip(&isSpace)
	name := string(skip(&isName))
	skip(&isSpace)
	if len(before) == 0 || name == "" || i == len(b) || b[i] != '"' && b[i] != '\'' {
		return i
	}
	n := bytes.IndexByte(b[i+1:], b[i])
	if n < 0 {
		return i
	}
	value := b[i+1 : i+1+n]
	i += n + 2
	// Of several declarations the first counts (XML, section 4.2).
	if _, again := r.entities[name]; again || len(r.entities) == mostEntities || len(value) > longestEntity || predefined(name) != 0 || bytes.IndexByte(value, '%') >= 0 {
		return i
	}
	if r.entities == nil {
		r.entities = map[string]string{}
	}
	r.entities[strings.Clone(name)] = withoutNumeric(value)
	return i
}

// withoutNumeric undoes the references to characters in the value of an entity.
func withoutNumeric(value []byte) string {
	var out []byte
	for {
		n := bytes.Index(value, []byte("&#"))
		if n < 0 {
			return string(append(out, value...))
		}
		out = append(out, value[:n]...)
		value = value[n:]
		length, ok := referenceLength(value)
		if !ok {
			out, value = append(out, value[:2]...), value[2:]
			continue
		}
		char, _ := numeric(string(value[1 : length-1]))
		out, value = append(out, string(char)...), value[length:]
	}
}

// expand returns an element with the references to declared entities expanded;
// changed is false if it has none of them.
func (r *Reader) expand(b []byte) (expanded []byte, changed bool) {
	expanded = mapReferences(b, func(name string, inTag bool) (string, bool) {
		value, ok := r.entityText(name, mostExpanded-r.expanded, 0)
		if !ok {
			return "", false
		}
		changed = true
		r.expanded += len(value)
		if inTag {
			value = strings.NewReplacer("<", "&lt;", `"`, "&quot;", "'", "&apos;").Replace(value)
		}
		return value, true
	})
	return expanded, changed
}

// entityText is what a reference to an entity stands for. It is not ok if that is
// not known, or longer than room.
func (r *Reader) entityText(name string, room, depth int) (text string, ok bool) {
	value, ok := r.entities[name]
	if !ok || depth > 8 || len(value) > room {
		return "", false
	}
	var b strings.Builder
	for {
		n := strings.IndexByte(value, '&')
		if n < 0 || b.Len()+len(value) > room {
			break
		}
		b.WriteString(value[:n])
		value = value[n:]
		length, _ := referenceLength([]byte(value))
		if length == 0 {
			return "", false
		}
		inner := value[:length]
		if _, declared := r.entities[value[1:length-1]]; declared {
			if inner, ok = r.entityText(value[1:length-1], room-b.Len(), depth+1); !ok {
				return "", false
			}
		}
		b.WriteString(inner)
		value = value[length:]
	}
	if b.Len()+len(value) > room {
		return "", false
	}
	b.WriteString(value)
	return b.String(), true
}

// withoutUndefined returns an element in which no reference is left to an entity
// that XML does not define: those that HTML has are characters, and the others text.
func withoutUndefined(b []byte) []byte {
	return mapReferences(b, func(name string, _ bool) (string, bool) {
		if char := xml.HTMLEntity[name]; char != "" {
			var s strings.Builder
			for _, c := range char {
				s.WriteString("&#" + strconv.Itoa(int(c)) + ";")
			}
			return s.String(), true
		}
		return "&amp;" + name + ";", true
	})
}

// mapReferences replaces the references to entities, but for XML's own, in the
// text and the attributes of an element that was read before. What to does not want
// stays.
func mapReferences(b []byte, to func(name string, inTag bool) (string, bool)) []byte {
	out := make([]byte, 0, len(b)+len(b)/8)
	part := func(b []byte, inTag bool) {
		for {
			n := bytes.IndexByte(b, '&')
			if n < 0 {
				out = append(out, b...)
				return
			}
			out = append(out, b[:n]...)
			b = b[n:]
			length, _ := referenceLength(b)
			length = max(length, 1)
			with, ok := "", false
			if length > 2 && b[1] != '#' {
				if name := string(b[1 : length-1]); predefined(name) == 0 {
					with, ok = to(name, inTag)
				}
			}
			if ok {
				out = append(out, with...)
			} else {
				out = append(out, b[:length]...)
			}
			b = b[length:]
		}
	}
	for len(b) > 0 {
		n := bytes.IndexByte(b, '<')
		if n < 0 {
			n = len(b)
		}
		part(b[:n], false)
		if b = b[n:]; len(b) == 0 {
			break
		}
		end := skipToken(b)
		if c := b[1]; c == '!' || c == '?' || c == '/' {
			out = append(out, b[:end]...)
		} else {
			part(b[:end], true)
		}
		b = b[end:]
	}
	return out
}
