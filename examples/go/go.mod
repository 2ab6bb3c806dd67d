module polylatch.example/first-lock

go 1.19
