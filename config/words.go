package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// nameForm matches the names of feeds and buses, which are parts of the names of topics.
var nameForm = regexp.MustCompile(fmt.Sprintf(`^[a-z][a-z0-9-]{0,%d}$`, maxListedName-1))

// CheckName returns an error unless a feed can have the name.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q: %s", name, badNameText(name))
}

// badNameText returns the error about a name, with the valid one that it was most likely meant to be.
func badNameText(name string) string {
	const rule = "a name has only lower-case letters, digits and -, and starts with a letter"
	if len(name) > maxListedName {
		return fmt.Sprintf("a name has at most %d characters", maxListedName)
	}
	if likely := strings.ReplaceAll(strings.ToLower(name), "_", "-"); nameForm.MatchString(likely) {
		return fmt.Sprintf("%s; try %q", rule, likely)
	}
	return rule
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
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(u.Host+u.Path), "-"), "-")
	if name == "" {
		return "feed"
	}
	if name[0] <= '9' {
		name = "feed-" + name
	}
	if len(name) > maxListedName {
		name = cutName(name) + hashSuffix(rawURL)
	}
	return name
}

// nearestWord returns the known word that a person who typed word most likely
// meant, or the empty string. Case, - and _ do not count, as in maxAge.
func nearestWord(word string, known []string) string {
	if len(word) > 200 {
		return "" // the distance takes quadratic time
	}
	plain := strings.NewReplacer("_", "", "-", "", ".", "")
	typed := plain.Replace(strings.ToLower(word))
	best, least := "", max(1, len(typed)/3)+1
	for _, k := range known {
		if d := editDistance(typed, plain.Replace(strings.ToLower(k))); d < least {
			best, least = k, d
		}
	}
	return best
}

// DidYouMean returns the end of an error text that suggests the known word that a person who typed
// word most likely meant; empty if there is none.
func DidYouMean(word string, known []string) string { return didYouMean(nearestWord(word, known)) }

// didYouMean returns the end of an error text that suggests word, if there is one.
func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", word)
}

// editDistance returns the number of bytes to insert, delete, replace or swap with
// their neighbour that turn a into b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
