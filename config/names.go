package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// nameForm matches the names of feeds and buses.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// CheckName returns an error unless a feed can have the name.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q: %s", name, badNameText(name))
}

func badNameText(name string) string {
	const rule = "a name has only lower-case letters, digits and -, and starts with a letter"
	if likely := likelyName(name); likely != "" {
		return fmt.Sprintf("%s; try %q", rule, likely)
	}
	return rule
}

// likelyName returns the valid name that an invalid one was most likely meant to be,
// or the empty string.
func likelyName(bad string) string {
	lower := strings.ReplaceAll(strings.ToLower(bad), "_", "-")
	if nameForm.MatchString(lower) {
		return lower
	}
	return ""
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_<-]+$`)

// quoteKey quotes a key that would break the form of a path, or of a line.
func quoteKey(key string) string {
	if plainKey.MatchString(key) {
		return key
	}
	return strconv.Quote(key)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// feedName makes a name of a URL's host and path.
func feedName(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "feed"
	}
	name := notInName.ReplaceAllString(strings.ToLower(u.Host+u.Path), "-")
	switch name = strings.Trim(name, "-"); {
	case name == "":
		return "feed"
	case name[0] <= '9':
		return "feed-" + name
	}
	return name
}
