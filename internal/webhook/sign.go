package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Least and most bytes of a secret, as the Standard Webhooks specification asks for.
const (
	leastSecret = 24
	mostSecret  = 64
)

// Secrets reads signing secrets, one a line, each whsec_ and the base64 of 24 to 64 random bytes. While one replaces another both stand
// there, and each request is signed by both.
func Secrets(text []byte) (secrets [][]byte, err error) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		word := strings.TrimSpace(string(line))
		if word == "" {
			continue
		}
		encoded, ok := strings.CutPrefix(word, "whsec_")
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(secret) < leastSecret || len(secret) > mostSecret {
			return nil, fmt.Errorf("line %d is no secret; want whsec_ and the base64 of %d to %d random bytes, as openssl rand -base64 32 makes", i+1, leastSecret, mostSecret)
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, errors.New("no secret in it; want a line of whsec_ and the base64 of 32 random bytes")
	}
	return secrets, nil
}

// sign is the value of the header webhook-signature, by the Standard Webhooks specification.
func sign(secrets [][]byte, id string, at time.Time, body []byte) string {
	var all []string
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}
