// Package credential has what proves to a server who connects, and to clients who
// serves: secrets and the files that have them, TLS certificates, and OAuth2 tokens.
// Files are read again when they are needed, so that a rotated secret or a renewed
// certificate takes effect without a restart. No error shows a secret.
package credential
