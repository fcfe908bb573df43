package config

import (
	"net/url"
	"regexp"
	"strings"
)

// placeholders are the parts of the names of topics and streams that differ by feed.
var placeholders = []string{"feed", "host"}

var (
	placeholderForm = regexp.MustCompile(`\{([a-z_-]+)\}`)
	notInHost       = regexp.MustCompile(`[^a-z0-9-]+`)
)

// expandTemplate replaces the placeholders in the name of a topic or stream of a feed: {feed} by its name, and
// {host} by the host and port of its URL, in which all other characters than letters, digits and - are _. Unknown
// placeholders stay.
func expandTemplate(text, feed, rawURL string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	host := "host" // the error about the URL is enough
	if u, err := url.Parse(rawURL); err == nil && u.Host != "" {
		host = strings.Trim(notInHost.ReplaceAllString(strings.ToLower(u.Host), "_"), "_")
	}
	return strings.NewReplacer("{feed}", feed, "{host}", host).Replace(text)
}

// literalPrefix returns the words of a topic before the first one with a placeholder, with the dot behind
// them. It is empty if there are no placeholders.
func literalPrefix(topic string) string {
	at := placeholderForm.FindStringIndex(topic)
	if at == nil {
		return ""
	}
	return topic[:strings.LastIndex(topic[:at[0]], ".")+1]
}
