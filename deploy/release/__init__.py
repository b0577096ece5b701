"""What a release consists of, how it is built, and how each part is checked without the clone: `make release`.

    dist/
      modelglot-V.tar.gz            the source archive, with tests, deploy and docs
      modelglot-V-py3-none-any.whl  the package
      modelglot-V.tgz               the Helm chart
      modelglot-V-image.tar.gz      the image, where there is a container engine
      modelglot-V.cdx.json          the image's packages (CycloneDX)
      THIRD-PARTY.md                their licences
      SHA256SUMS                    of all of these

`parts` builds them, `checks` installs each into an empty environment, `engines` are what builds and runs the image,
`commands` runs programs, `version` is the one place for the version.
"""
