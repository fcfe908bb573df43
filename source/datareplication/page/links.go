package page

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/internal/safetext"
	"github.com/feedbridge/feedbridge/source/link"
)

// Links are the links of a page: absolute http or https URLs without user info and without
// a fragment, or "" for a link that the page does not have.
type Links struct{ Self, Prev, Next string }

// ParseLinks parses the Link fields of a page whose URL is base. Each field has one link
// or several, in any order. Of two links with the same relation the first counts, and the
// second is a violation.
//
// A feed ends where a page has no next link, so a link that is overlooked would stop the
// reading without an error. Therefore every link value must be a self, prev or next link,
// or be well-formed with another relation, such as a preload of a content network, or be
// malformed without naming self, prev or next. Anything else is an error that matches
// [feed.ErrPermanent]. A link with an empty target counts as absent, because servers fill
// templates with links that they do not have.
func ParseLinks(fields []string, base *url.URL) (Links, []feed.Violation, error) {
	var found Links
	var violations []feed.Violation
	page := Name(base)
	for _, field := range fields {
		for l := range link.Read(field) {
			relations, err := ownRelations(l)
			if err != nil {
				return Links{}, nil, newBreach(kindBadLink, page, "the link %q %s", evidence(l.Value), err.Error())
			}
			if len(relations) == 0 {
				continue
			}
			address, ok := resolveLink(base, l.Target)
			if !ok {
				return Links{}, nil, newBreach(kindBadLink, page, "the link %q does not lead to an http or https URL", evidence(l.Value))
			}
			for _, relation := range relations {
				known := found.linkOf(relation)
				if *known != "" {
					violations = append(violations, feed.NewViolation(kindRepeatedLink, page, "there is a second link rel=%s, %q; the first one, %q, counts", relation, evidence(l.Value), *known))
					continue
				}
				*known = address
			}
		}
	}
	return found, violations, nil
}

// linkOf returns the link of a relation, or nil if the relation is not self, prev or next.
func (l *Links) linkOf(relation string) *string {
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

var (
	errUnreadableLink = errors.New("cannot be read, and it may be a self, prev or next link")
	errForeignAnchor  = errors.New("has an anchor, so it may be the link of another page")
)

// ours matches text that may name the relation self, prev or next.
var ours = regexp.MustCompile(`(?i)self|prev|next`)

// A relation is a registered name or a URI (RFC 8288, section 3.3).
var wellFormedRelation = regexp.MustCompile(`^[a-z][a-z0-9.-]*$|:`)

// ownRelations returns the relations of a link that are self, prev or next. It fails on a malformed
// link that may have one of them.
func ownRelations(l link.Link) (relations []string, err error) {
	// In a quoted string a backslash may split a word.
	if l.Malformed && ours.MatchString(strings.ReplaceAll(l.Parameters, `\`, "")) {
		return nil, errUnreadableLink
	}
	for _, relation := range l.Relations {
		switch {
		case relation == "self" || relation == "prev" || relation == "next":
			relations = append(relations, relation)
		case ours.MatchString(relation) && !wellFormedRelation.MatchString(relation):
			return nil, errUnreadableLink
		}
	}
	if len(relations) > 0 && l.Anchored {
		return nil, errForeignAnchor
	}
	return relations, nil
}

// resolveLink returns target as an absolute URL, without user info: only the
// configuration has credentials, and decides which hosts get them.
func resolveLink(base *url.URL, target string) (string, bool) {
	// A cursor is text and cannot hold other bytes.
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
	return safetext.Excerpt(userInfo.ReplaceAllString(value, "//"))
}
