package page

import (
	"errors"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tomnomnom/linkheader"

	"github.com/feedbridge/feedbridge/feed"
)

// Links are a page's links: absolute http URLs without user info and without a
// fragment, or "" where the page has no such link.
type Links struct{ Self, Prev, Next string }

// ParseLinks reads the Link fields of a page that was got from base. Each field
// may have one link or several, in any order. Of two links with the same
// relation the first counts, and the second is a violation.
//
// A link that got lost would read as the end of the feed: a silent stop. So
// every link value is accounted for. It is one of ours, or it is readable and
// has another relation (such as a content network's preload), or it is not
// readable and does not name a relation of ours; anything else is an error. A
// link with a blank target counts as absent, because servers fill templates
// with links that they do not have.
func ParseLinks(fields []string, base *url.URL) (Links, []feed.Violation, error) {
	var found Links
	var violations []feed.Violation
	page := Name(base)
	for _, field := range fields {
		for value := range linkValues(field) {
			target, relations, err := readLink(value)
			if err != nil {
				return Links{}, nil, broken(BadLink, page, "the link %q %s", evidence(value), err.Error())
			}
			if target == "" || len(relations) == 0 {
				continue
			}
			address, ok := resolveLink(base, target)
			if !ok {
				return Links{}, nil, broken(BadLink, page, "the link %q does not lead to an http or https URL", evidence(value))
			}
			for _, relation := range relations {
				link := found.of(relation)
				if *link != "" {
					violations = append(violations, violation(RepeatedLink, page, "there is a second link rel=%s, %q; the first one, %q, counts", relation, evidence(value), *link))
					continue
				}
				*link = address
			}
		}
	}
	return found, violations, nil
}

// of returns the link of a relation, and nil if the relation is not one of ours.
func (l *Links) of(relation string) *string {
	switch relation {
	case "self":
		return &l.Self
	case "prev":
		return &l.Prev
	case "next":
		return &l.Next
	}
	return nil
}

// linkValues cuts a Link field at the commas that stand outside of <> and of
// quotes. If one of those does not end, neither does the last value, so that
// nothing after it is missed.
func linkValues(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, closing := 0, byte(0)
		for i := 0; i < len(field); i++ {
			switch c := field[i]; {
			case closing == '"' && c == '\\':
				i++
			case closing != 0:
				if c == closing {
					closing = 0
				}
			case c == '<':
				closing = '>'
			case c == '"':
				closing = '"'
			case c == ',':
				if value := trimBlanks(field[start:i]); value != "" && !yield(value) {
					return
				}
				start = i + 1
			}
		}
		if value := trimBlanks(field[start:]); value != "" {
			yield(value)
		}
	}
}

var (
	errUnreadableLink = errors.New("cannot be read, and it may be a self, prev or next link")
	errForeignAnchor  = errors.New("has an anchor, so it may be the link of another page")
	errLinkheader     = errors.New("is read in two ways")
)

// ours matches what may have been meant for one of our relations.
var ours = regexp.MustCompile(`(?i)self|prev|next`)

// A relation is a registered name or a URI (RFC 8288, section 3.3).
var wellFormedRelation = regexp.MustCompile(`^[a-z][a-z0-9.-]*$|:`)

// readLink returns the target of one link value, and which of our relations it
// has, in lower case. It fails on a value that may be one of ours and that it
// cannot read.
func readLink(value string) (target string, relations []string, err error) {
	target, rest, ok := cutTarget(value)
	if !ok {
		rest = value
	}
	params, readable := parseLinkParams(rest)
	if !ok || !readable {
		// A backslash in a quoted string may stand within a word.
		if ours.MatchString(strings.ReplaceAll(rest, `\`, "")) {
			return "", nil, errUnreadableLink
		}
		return "", nil, nil
	}
	if target == "" {
		return "", nil, nil
	}
	link, err := guarded(target, params.rel)
	if err != nil {
		return "", nil, err
	}
	for _, relation := range strings.Fields(strings.ToLower(link.Rel)) {
		switch {
		case relation == "self" || relation == "prev" || relation == "next":
			relations = append(relations, relation)
		case ours.MatchString(relation) && !wellFormedRelation.MatchString(relation):
			return "", nil, errUnreadableLink
		}
	}
	if len(relations) > 0 && params.anchored {
		return "", nil, errForeignAnchor
	}
	return link.URL, relations, nil
}

// guarded has linkheader read a link. That package cuts at every comma and
// semicolon before it looks at <> and quotes, and drops what it then does not
// understand. So it is given one link at a time, with nothing in it that it
// could stumble over, and its answer has to be what it was given.
func guarded(target, rel string) (linkheader.Link, error) {
	read := linkheader.Parse("<" + url.PathEscape(target) + `>; rel="` + url.PathEscape(rel) + `"`)
	if len(read) != 1 {
		return linkheader.Link{}, errLinkheader
	}
	link := read[0]
	var err1, err2 error
	link.URL, err1 = url.PathUnescape(link.URL)
	link.Rel, err2 = url.PathUnescape(link.Rel)
	if err1 != nil || err2 != nil || link.URL != target || link.Rel != rel {
		return linkheader.Link{}, errLinkheader
	}
	return link, nil
}

// relFirst matches the parameters of a link whose first one is rel.
var relFirst = regexp.MustCompile(`(?i)^;[ \t]*rel[ \t]*=`)

// cutTarget cuts the target off a link value. It may stand without <>, as in
// the specification's examples, if it is an absolute http URL and rel comes
// Next: with anything else there, nobody can say where the URL ends.
func cutTarget(value string) (target, rest string, ok bool) {
	if strings.HasPrefix(value, "<") {
		target, rest, ok = strings.Cut(value[1:], ">")
		return trimBlanks(target), rest, ok && isPlain(trimBlanks(target))
	}
	end := strings.IndexByte(value, ';')
	if end < 0 {
		end = len(value)
	}
	target, rest = trimBlanks(value[:end]), value[end:]
	if target == "" {
		return "", rest, true
	}
	lower := strings.ToLower(target)
	absolute := strings.HasPrefix(lower, "http://") || strings.HasPrefix(lower, "https://")
	return target, rest, absolute && isPlain(target) && (rest == "" || relFirst.MatchString(rest))
}

// isPlain says whether s is free of what no URL has and what would be the sign
// of a missing bracket or quote.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '<' || r == '>' })
}

// linkParams are those parameters of a link that decide whose link it is.
type linkParams struct {
	rel      string // of the first rel; RFC 8288 has parsers ignore the others
	anchored bool   // the link is that of the page which an anchor names
}

// parseLinkParams reads the parameters of a link value. It takes the faults
// that are common with foreign links: no value, nothing between semicolons,
// and characters that ought to be in quotes.
func parseLinkParams(s string) (params linkParams, ok bool) {
	hasRel := false
	for s = trimBlanks(s); s != ""; s = trimBlanks(s) {
		if s[0] != ';' {
			return linkParams{}, false
		}
		s = trimBlanks(s[1:])
		n := 0
		for n < len(s) && isTokenByte[s[n]] {
			n++
		}
		name, value := strings.ToLower(s[:n]), ""
		s = trimBlanks(s[n:])
		if n > 0 && strings.HasPrefix(s, "=") {
			s = trimBlanks(s[1:])
			if strings.HasPrefix(s, `"`) {
				if value, s, ok = cutQuoted(s); !ok {
					return linkParams{}, false
				}
			} else {
				end := len(s)
				if i := strings.IndexAny(s, "; \t"); i >= 0 {
					end = i
				}
				value, s = s[:end], s[end:]
				if !isPlain(value) {
					return linkParams{}, false
				}
			}
		}
		switch {
		case name == "rel" && !hasRel:
			params.rel, hasRel = value, true
		case name == "anchor":
			params.anchored = true
		}
	}
	return params, true
}

// resolveLink returns target as an absolute URL. User info is dropped:
// credentials come from the configuration alone, and what they are sent to is
// decided there.
func resolveLink(base *url.URL, target string) (string, bool) {
	// A cursor is text, so bytes that are not could not be stored in it.
	if !utf8.ValidString(target) {
		return "", false
	}
	u, err := base.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", false
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	return u.String(), true
}

var userInfo = regexp.MustCompile(`//[^/?#<>\s]*@`)

// evidence is an excerpt of a link value, without the user info of its URLs.
func evidence(value string) string {
	return excerpt(userInfo.ReplaceAllString(value, "//"))
}
