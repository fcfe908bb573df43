// Package link reads the HTTP field Link (RFC 8288).
//
// Package linkheader parses it. It splits at every comma and semicolon, also within a URL or a quoted
// string, ignores backslashes, and omits what it cannot read. Therefore this package escapes these
// characters, and passes only well-formed values, one at a time.
package link

import (
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/tomnomnom/linkheader"
)

// A Link is one value of a Link field.
type Link struct {
	// Target is the URL reference. If it is empty, there are no relations: the server has filled a
	// template with a link that it does not have.
	Target string
	// Relations are the relation types, in lower case.
	Relations []string
	// Type is the media type of the target.
	Type string
	// Anchored reports that another page, or a part of this one, is the origin of the link.
	Anchored bool

	// Malformed reports that the value cannot be read, so that the fields above are empty.
	Malformed bool
	// Value is the value as written.
	Value string
	// Parameters is the value without its target, or the whole value if its target cannot be read.
	Parameters string
}

// The characters that linkheader must not see are replaced by control characters. No server can send
// these: noControls removes them from a field that has them all the same. No replacement changes the
// length, so that the values are found in the field as written.
var (
	noControls    = strings.NewReplacer("\t", " ", "\x00", "\x7f", "\x01", "\x7f", "\x02", "\x7f", "\x03", "\x7f", "\x04", "\x7f", "\x05", "\x7f")
	escapedTarget = strings.NewReplacer(",", "\x01", ";", "\x02")
	escapedString = strings.NewReplacer(",", "\x01", ";", "\x02", `\"`, "\x03\x04", `\\`, "\x03\x05", `\`, "\x03")
	unescaped     = strings.NewReplacer("\x01", ",", "\x02", ";", "\x03", "", "\x04", `"`, "\x05", `\`)
)

var (
	// enclosed matches a target or a quoted string. One that is not closed extends to the end of the
	// field, so that no link in it is overlooked.
	enclosed = regexp.MustCompile(`(?s)<[^>]*>?|"(?:[^"\\]|\\.?)*"?`)
	// bare matches the beginning of a URL without brackets, as in the specification of datareplication.
	bare = regexp.MustCompile(`^(?i:https?)://`)
	// relFirst matches the only parameter that such a URL may precede. Any other may be a part of the URL.
	relFirst = regexp.MustCompile(`^ *(?i:rel) *=`)
	// parameter matches a parameter. It accepts the faults that are common in links of other software:
	// no name, no value, and characters that should be in quotes.
	parameter = regexp.MustCompile("^ *(?:([!#-'*+.^_`|~0-9A-Za-z-]+) *(?:(=) *(\"[^\"]*\"|[^\\x00-\\x20\\x7f\"<>]*) *)?)?$")
)

// Read returns the links of a Link field, in order.
func Read(field string) iter.Seq[Link] {
	return func(yield func(Link) bool) {
		start := 0
		for escaped := range strings.SplitSeq(enclosed.ReplaceAllStringFunc(noControls.Replace(field), escape), ",") {
			value := strings.Trim(field[start:start+len(escaped)], " \t")
			start += len(escaped) + len(",")
			if value != "" && !yield(parse(value, strings.Trim(escaped, " "))) {
				return
			}
		}
	}
}

func escape(enclosed string) string {
	if enclosed[0] == '<' {
		return escapedTarget.Replace(enclosed)
	}
	return escapedString.Replace(enclosed)
}

// parse parses a value, which is given as written and escaped.
func parse(value, escaped string) Link {
	l := Link{Malformed: true, Value: value, Parameters: value}
	parts := strings.Split(escaped, ";")
	url, behind, ok := cutTarget(parts)
	if !ok {
		return l
	}
	l.Parameters = value[len(parts[0])-len(behind):]
	if strings.Trim(behind, " ") != "" {
		return l
	}
	parts[0] = "<" + url + ">"
	for i, part := range parts[1:] {
		match := parameter.FindStringSubmatch(part)
		if match == nil {
			return l
		}
		name, equals, text := match[1], match[2], match[3]
		parts[i+1] = strings.ToLower(name) + equals + text
	}
	l.Malformed = false
	// The first of several parameters with one name counts (RFC 8288, sections 3.3 and 3.4.1). For
	// linkheader the last one does.
	slices.Reverse(parts)
	for _, parsed := range linkheader.Parse(strings.Join(parts, ";")) {
		l.Target = unescaped.Replace(parsed.URL)
		l.Relations = strings.Fields(strings.ToLower(unescaped.Replace(parsed.Rel)))
		l.Type = unescaped.Replace(parsed.Params["type"])
		l.Anchored = parsed.HasParam("anchor")
	}
	return l
}

// cutTarget returns the target of a value that is split at its semicolons, and what is behind its
// brackets. A target has no control characters, blanks, brackets and quotes: they may be signs of a missing
// bracket or quote.
func cutTarget(parts []string) (url, behind string, ok bool) {
	url, inBrackets := strings.CutPrefix(parts[0], "<")
	if inBrackets {
		url, behind, ok = strings.Cut(url, ">")
	} else {
		ok = url == "" || bare.MatchString(url) && (len(parts) == 1 || relFirst.MatchString(parts[1]))
	}
	url = strings.Trim(url, " ")
	return url, behind, ok && !strings.ContainsFunc(url, func(r rune) bool {
		return r > '\x02' && r <= ' ' || r == '"' || r == '<' || r == '>' || r == '\x7f'
	})
}
