package message

import "strings"

// IsJSON reports whether the data of a CloudEvent with that datacontenttype is a JSON value, as it is without a type.
func IsJSON(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return media == "" || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// IsAttribute reports whether an attribute may have that name (CloudEvents 1.0.2, section 3.1).
func IsAttribute(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
