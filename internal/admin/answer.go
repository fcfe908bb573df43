package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/feedbridge/feedbridge/internal/safetext"
)

// answerWriter writes the answers to requests.
type answerWriter struct {
	log      *slog.Logger
	redactor *safetext.Redactor
}

// writeJSON answers with v, indented: people read it with curl.
func (a answerWriter) writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		a.log.Error("cannot encode the status as JSON", "error", err)
		http.Error(w, "cannot encode the status as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(a.redactor.JSON(body.Bytes(), longestText))
}
